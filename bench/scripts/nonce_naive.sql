\set s random(0, :signers - 1)
insert into naive_nonce (signer, nonce)
select 'bench-' || :s, coalesce(max(n.nonce) + 1, 0) from naive_nonce n where n.signer = 'bench-' || :s
on conflict (signer, nonce) do nothing;
