-- I5, I7, I8, I16: the attempts of an entry are consistent with each other and with its lane; I10: unknown outcomes are counted.
-- Uses pk_attempt of the partitions of that time (of all before it for an entry tried earlier), pk_lane, pk_replay_item.
WITH tried AS MATERIALIZED (
    SELECT subject_id, sequence, count(*) AS count, min(number) AS first, max(number) AS last, sum(number) AS sum,
           min(number) FILTER (WHERE outcome = 'delivered') AS delivered,
           count(*) FILTER (WHERE outcome = 'unknown') AS unknown,
           -- A 2xx answer about another key is unknown, with an error.
           count(*) FILTER (WHERE (outcome = 'delivered') <> coalesce(status BETWEEN 200 AND 299, false)
                              AND NOT (outcome = 'unknown' AND error IS NOT NULL)) AS misread,
           count(*) FILTER (WHERE retry_at < finished_at) AS backwards,
           max(finished_at) AS finished_at
    FROM holdfast.attempt
    WHERE endpoint_id = %(endpoint_id)s AND subject_id BETWEEN %(first_subject)s AND %(last_subject)s
      AND finished_at >= %(attempts_since)s AND finished_at < %(until)s
    GROUP BY subject_id, sequence
),
judged AS (
    SELECT t.*, l.delivered_sequence, l.last_sequence, earlier.numbers[2] AS delivered_before,
           t.last - t.first + 1 <> t.count OR (t.first + t.last) * t.count <> 2 * t.sum AS gap,
           t.delivered IS NOT NULL AND coalesce(l.delivered_sequence, 0) < t.sequence AS unpassed,
           coalesce(t.last > coalesce(earlier.numbers[2], t.delivered), false) AS again,
           coalesce(l.last_sequence, 0) < t.sequence AS unrouted,
           t.finished_at > now() + interval '1 minute' AS future,
           -- Attempts of dropped partitions are not missing.
           earlier.numbers IS NOT NULL AND earlier.numbers[1] IS DISTINCT FROM t.first - 1
           AND EXISTS (
               SELECT FROM holdfast.entry e
               WHERE e.subject_id = t.subject_id AND e.sequence = t.sequence
                 AND e.created_at >= %(attempts_kept)s::timestamptz + interval '1 hour' OFFSET 0) AS headless
    FROM tried t
    LEFT JOIN holdfast.lane l
      ON l.endpoint_id = %(endpoint_id)s AND l.subject_id = t.subject_id
     AND l.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.first > 1 THEN (
            SELECT ARRAY[max(a.number), min(a.number) FILTER (WHERE a.outcome = 'delivered')]
            FROM holdfast.attempt a
            WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = t.subject_id AND a.sequence = t.sequence
              AND a.finished_at < %(attempts_since)s
        ) END AS numbers
        OFFSET 0
    ) earlier
),
violations AS (
    SELECT v.rule, j.subject_id, j.sequence, v.detail
    FROM judged j
    CROSS JOIN LATERAL (VALUES
        ('attempt_gap', j.gap OR j.headless,
         format('%%s attempts, numbered %%s to %%s', j.count, j.first, j.last)),
        ('delivered_unpassed', j.unpassed,
         format('attempt %%s delivered it; its lane is at %%s', j.delivered, coalesce(j.delivered_sequence, 0))),
        ('sent_after_delivered',
         CASE WHEN j.again THEN NOT EXISTS (
             SELECT FROM holdfast.replay_item i
             WHERE i.endpoint_id = %(endpoint_id)s AND i.subject_id = j.subject_id AND i.sequence = j.sequence
             OFFSET 0) END,
         format('delivered by attempt %%s, and tried again up to %%s', coalesce(j.delivered_before, j.delivered), j.last)),
        ('answer_misread', j.misread > 0, format('%%s of its attempts', j.misread)),
        ('attempt_unrouted', j.unrouted,
         format('its lane is routed up to %%s', coalesce(j.last_sequence, 0))),
        ('time_backwards', j.backwards > 0, format('%%s of its attempts have a retry before their end', j.backwards)),
        ('time_future', j.future, format('tried at %%s', j.finished_at))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE (j.gap OR j.headless OR j.unpassed OR j.again OR j.unrouted OR j.future OR j.misread > 0 OR j.backwards > 0)
      AND v.violated
)
SELECT n.rule, n.count, s.name AS subject, n.sequence, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
UNION ALL
SELECT NULL, coalesce(sum(count), 0)::bigint, NULL, NULL, 'attempts' FROM tried
UNION ALL
SELECT NULL, coalesce(sum(unknown), 0)::bigint, NULL, NULL, 'unknown_outcomes' FROM tried
