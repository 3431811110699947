select * from fencepost.outbox_put_many('bench', null, array_fill('{"n": 1}'::jsonb, array[:batch::integer]));
