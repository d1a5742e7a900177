-- Subscribes this session to the doorbell until it ends.
-- Needs no index.
LISTEN holdfast_doorbell
