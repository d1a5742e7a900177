-- What each login may be, after the roles exist. Repeated by every start; changes nothing then.
GRANT holdfast_sink TO job WITH INHERIT FALSE, SET TRUE;
GRANT holdfast_dispatcher TO dispatcher WITH INHERIT FALSE, SET TRUE;
GRANT holdfast_operator, holdfast_sink TO api WITH INHERIT FALSE, SET TRUE;
