-- Users are walked by their names: who are many by single sign-on. The function that answered all of them goes.
drop function if exists fencepost.console_users();
