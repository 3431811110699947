select fencepost.outbox_put('bench', null, '{"n": 1}', '{}', null);
