-- Lets this session hear the doorbell, until it ends.
-- Needs no index.
LISTEN holdfast_doorbell
