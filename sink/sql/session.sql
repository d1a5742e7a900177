-- Takes on the sink's role and bounds every wait of the session; a server that does not flush by
-- default is made to flush for us. No index.
SELECT
    set_config('role', %(role)s, false),
    set_config('timezone', 'UTC', false),
    set_config('lock_timeout', %(lock_ms)s, false),
    set_config('statement_timeout', %(statement_ms)s, false),
    set_config('idle_in_transaction_session_timeout', %(idle_ms)s, false),
    set_config(
        'synchronous_commit',
        CASE current_setting('synchronous_commit')
            WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit')
        END,
        false
    )
