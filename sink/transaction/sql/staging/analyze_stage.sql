-- Lets the planner know a stage, which was made a moment ago; runs as the schema's owner.
-- No index: it reads a sample.
SELECT holdfast.analyze_stage(%(number)s)
