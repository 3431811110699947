-- People who are known by another house: its name, and the name that it never gives to anybody else. A user of ours has
-- neither, and nobody becomes him by being called the same elsewhere.
alter table fencepost.console_user
  add column issuer text collate "C",
  add column subject text collate "C",
  add constraint console_user_issuer_goes_with_subject check ((issuer is null) = (subject is null)),
  add constraint console_user_subject_key unique (issuer, subject);
