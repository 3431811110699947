-- The row that lets one console at a time count a minute.
alter table fencepost.console_turn rename to console_roll_lock;
alter table fencepost.console_roll_lock rename constraint console_turn_pkey to console_roll_lock_pkey;
alter table fencepost.console_roll_lock rename constraint console_turn_has_one_row to console_roll_lock_has_one_row;
