-- The accounts have them. A judge of version 8 cannot work here: it is two versions behind, and refuses to start.
drop table fencepost.judge_session, fencepost.judge_token, fencepost.judge_attempt, fencepost.judge_key, fencepost.judge_user;
drop function if exists fencepost.judge_has_users, fencepost.judge_user_set, fencepost.judge_user_disable,
  fencepost.judge_users, fencepost.judge_token_make, fencepost.judge_token_revoke, fencepost.judge_tokens,
  fencepost.judge_token_use, fencepost.judge_key, fencepost.judge_password_set, fencepost.judge_login_begin,
  fencepost.judge_login_begin_known, fencepost.judge_login_end, fencepost.judge_session_begin,
  fencepost.judge_session_use, fencepost.judge_session_end;
