-- Removes the flow of the demo, its checkpoints and its table. Rows of leases stay: a token never goes back.
delete from fencepost.checkpoint where resource like 'flow:demo-totals/%';
delete from fencepost.flow_state where resource like 'flow:demo-totals/%';
delete from fencepost.flow_part where resource like 'flow:demo-totals/%';
delete from fencepost.flow_activity where resource like 'flow:demo-totals/%';
delete from fencepost.flow_late where resource like 'flow:demo-totals/%';
delete from fencepost.flow_return where resource like 'flow:demo-totals/%';
delete from fencepost.flow_dead where flow = 'demo-totals';
delete from fencepost.flow_savepoint where flow = 'demo-totals';
delete from fencepost.flow_layout where flow = 'demo-totals';
delete from fencepost.flow where name = 'demo-totals';
delete from fencepost.event where noun in ('checkpoint', 'lease') and subject like 'flow:demo-totals/%';
drop table if exists demo_totals;
