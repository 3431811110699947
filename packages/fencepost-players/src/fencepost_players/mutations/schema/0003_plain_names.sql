-- The phase of each service and the recorded seeds, under plain names.
alter table fencepost.mutation_gate rename to mutation_phase;
alter table fencepost.mutation_phase rename constraint mutation_gate_pkey to mutation_phase_pkey;
alter table fencepost.mutation_phase rename constraint mutation_gate_has_two_phases to mutation_phase_is_known;
alter table fencepost.mutation_dice rename to mutation_seed;
alter table fencepost.mutation_seed rename constraint mutation_dice_pkey to mutation_seed_pkey;
alter index fencepost.mutation_dice_by_expiry rename to mutation_seed_by_expiry;
drop view if exists fencepost.mutation_gates;
drop function if exists fencepost._mutation_gate_ensure(text);
drop function if exists fencepost._mutation_check_dice(text, text, text, text);
drop function if exists fencepost.mutation_dice_note(text, text, text, text, interval);
drop function if exists fencepost.mutation_dice_clean(integer);
drop function if exists fencepost.mutation_marker_lag(interval);
