-- The accounts have them. A console of version 6 cannot work here: it is two versions behind, and refuses to start.
drop table fencepost.console_session, fencepost.console_ticket, fencepost.console_token, fencepost.console_attempt,
  fencepost.console_audit, fencepost.console_key, fencepost.console_user;
drop function if exists fencepost._console_check_role, fencepost._console_check_name, fencepost._console_lesser,
  fencepost.console_key, fencepost.console_has_admin, fencepost.console_has_users, fencepost.console_user_set,
  fencepost.console_user_disable, fencepost.console_users, fencepost._console_note, fencepost.console_audit_begin,
  fencepost.console_audit_end, fencepost.console_audit_page, fencepost.console_login_begin,
  fencepost.console_login_begin_known, fencepost.console_login_end, fencepost.console_session_begin,
  fencepost.console_session_use, fencepost.console_session_end, fencepost.console_ticket_make,
  fencepost.console_ticket_use, fencepost.console_token_make, fencepost.console_token_use, fencepost.console_tokens,
  fencepost.console_token_revoke, fencepost.console_sign_on;
