-- Where the steps hold other GPU work too, times are a lower bound and that is a note; where they hold none, there is no answer.
WITH seen AS (
    SELECT u.*, EXISTS (SELECT 1 FROM op o WHERE o.rank = u.rank AND coalesce(o.launch, o.start) BETWEEN u.start AND u."end") AS partly FROM untraced_graph u
)
SELECT rank, start AS start_ns, "end" AS end_ns, launches AS count, launches, CASE WHEN NOT partly THEN launches || ' CUDA graph launches left no GPU rows' END AS abstain
FROM seen
ORDER BY rank
