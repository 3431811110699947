-- What the executing function of every mutation begins with, and how it says no.
--
-- A mutation is executed by one call of one function. Its body is: _mutation_claim, unconditionally and first; then the
-- entity's row FOR UPDATE; then the comparison of its version; then the writes; then the audit. Whatever raises takes the
-- marker along, so that the request can be sent again at once.
--
-- Two states of our own class, beside the refusals:
--   ZF110   the version is not the one that the plan was made for: execute the same plan again with the present one
--   ZF111   the plan cannot be carried out on the row as it is: too little of something, or too much
--   ZF112   the plan was made from facts that have changed since: ask again, so that it is made anew

-- Claim the request. Null for the key is a request without an id that the gate let pass: nothing protects it.
create or replace function fencepost._mutation_claim(
  p_scope text, p_key text, p_digest text, p_response jsonb, out outcome text, out response jsonb
) language plpgsql volatile
as $$
begin
  if p_key is null then
    perform fencepost._require_read_committed();
    outcome := 'claimed';
    response := p_response;
    return;
  end if;
  perform fencepost._marker_check(p_scope, p_key, p_digest, p_response);
  select c.outcome, c.response into outcome, response from fencepost._claim_try(p_scope, p_key, p_digest, p_response) c;
end $$;

-- What is known of a request before it is planned: open, replay, duplicate or mismatch. It locks nothing, so the claim has
-- the last word.
create or replace function fencepost._mutation_known(
  p_scope text, p_key text, p_digest text, out outcome text, out response jsonb
) language plpgsql stable
as $$
declare
  v_known fencepost.marker;
begin
  outcome := 'open';
  if p_key is null then
    return;
  end if;
  select * into v_known from fencepost.marker m where m.scope = p_scope and m.key = p_key;
  if found then
    outcome := fencepost._marker_answer(p_digest, v_known.digest, v_known.response);
    if outcome = 'replay' then
      response := v_known.response;
    end if;
  end if;
end $$;

create or replace function fencepost._mutation_conflict(p_subject text, p_expected bigint, p_version bigint) returns void
language plpgsql volatile
as $$
begin
  raise exception '% has version %, and the plan was to be carried out on version %.', p_subject, p_version, p_expected
    using errcode = 'ZF110', detail = jsonb_build_object('subject', p_subject, 'version', p_version);
end $$;

create or replace function fencepost._mutation_unfit(p_message text, p_meta jsonb) returns void
language plpgsql volatile
as $$
begin
  raise exception '%', p_message using errcode = 'ZF111', detail = p_meta;
end $$;

create or replace function fencepost._mutation_stale(p_subject text) returns void
language plpgsql volatile
as $$
begin
  raise exception '% has changed since the plan was made.', p_subject
    using errcode = 'ZF112', detail = jsonb_build_object('subject', p_subject);
end $$;
