-- Removes the signers of the demo's chain, with their nonces and transactions. Rows of leases stay: a token never goes back.
create temporary table demo_signer on commit drop as
  select s.signer_id, 'signer:' || s.chain_id || ':' || s.signer as resource from fencepost.nonce_signer s where s.chain_id = 31415926;
delete from fencepost.nonce_signature t using demo_signer d where t.signer_id = d.signer_id;
delete from fencepost.nonce_allocation t using demo_signer d where t.signer_id = d.signer_id;
delete from fencepost.event t using fencepost.nonce_transaction x, demo_signer d
where x.signer_id = d.signer_id and t.noun = 'transaction' and t.subject = x.transaction_id::text;
delete from fencepost.nonce_transaction t using demo_signer d where t.signer_id = d.signer_id;
delete from fencepost.nonce_signer t using demo_signer d where t.signer_id = d.signer_id;
delete from fencepost.event t using demo_signer d where t.noun in ('lease', 'signer') and t.subject = d.resource;
delete from fencepost.refusal t using demo_signer d where t.noun in ('lease', 'signer') and t.subject = d.resource;
