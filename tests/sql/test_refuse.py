"""SQL that watersmeet does not run is refused by name, with a remedy."""

import pytest

from watersmeet.errors import UnsupportedError

W = "WHERE a.k = b.k"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT a.k FROM s0 a NATURAL JOIN s1 b", "USING"),
        (f"SELECT a.k FROM s0 a, s1 b {W} GROUP BY ROLLUP (a.k)", "ROLLUP.*list the columns"),
        (f"SELECT a.k FROM s0 a, s1 b {W} GROUP BY a.k WITH CUBE", "CUBE"),
        (f"SELECT a.k FROM s0 a, s1 b {W} GROUP BY GROUPING SETS ((a.k), ())", "GROUPINGSETS"),
        (f"SELECT a.k FROM s0 a, s1 b {W} GROUP BY ALL", "ALL"),
        (f"SELECT a.k FROM s0 a, s1 b {W} GROUP BY (a.k, b.v)", "bare"),
        (f"SELECT a.k FROM s0 a, s1 b {W} AND count(*) > 1", "aggregate.*stand in SELECT"),
        (
            f"SELECT collect_list(a.v) FROM s0 a, s1 b {W}",
            r"collect_list\(a.v\) is for groups that end: add window\(a.ts",
        ),
        (
            f"SELECT percentile(a.v, 0.5) FROM s0 a, s1 b {W}",
            "the aggregate PERCENTILE.*count, sum, min, max and avg of one",
        ),
        (f"SELECT count(a.k, b.k) FROM s0 a, s1 b {W}", "of one argument"),
        (f"SELECT count() FROM s0 a, s1 b {W}", "of one argument"),
        (
            f"SELECT a.k, count(DISTINCT b.v) FROM s0 a, s1 b {W} GROUP BY a.k",
            r"count\(DISTINCT b.v\) is for groups that end: add window\(a.ts",
        ),
        (f"SELECT sum(DISTINCT a.v) FROM s0 a, s1 b {W}", "distinct values"),
        (
            f"SELECT count(DISTINCT a.v, b.v) FROM s0 a, s1 b {W} GROUP BY window(a.ts, '5 s')",
            "only count takes distinct values, of one",
        ),
        (f"SELECT sum(a.v) FILTER (WHERE a.v > 1) FROM s0 a, s1 b {W}", "FILTER.*CASE WHEN"),
        (f"SELECT sum(a.v) OVER (PARTITION BY a.k) FROM s0 a, s1 b {W}", "OVER"),
        (f"SELECT DISTINCT a.k FROM s0 a, s1 b {W} GROUP BY a.k", "DISTINCT with GROUP BY.*leave DISTINCT out"),
        (f"SELECT DISTINCT count(*) FROM s0 a, s1 b {W}", "DISTINCT over aggregates"),
        (f"SELECT DISTINCT ON (a.k) a.k, b.v FROM s0 a, s1 b {W}", "DISTINCT ON"),
        (f"SELECT DISTINCT a.k, rand() AS r FROM s0 a, s1 b {W}", "RAND.*replayable"),
        (f"SELECT sum(rand()) FROM s0 a, s1 b {W}", "RAND.*replayable"),
        (f"SELECT a.k, count(*) FROM s0 a, s1 b {W} GROUP BY a.k HAVING count(*) > 1", "HAVING.*filter the result"),
        (f"SELECT a.k FROM s0 a, s1 b {W} ORDER BY a.k", "ORDER BY"),
        (f"SELECT a.k FROM s0 a, s1 b {W} LIMIT 5", "LIMIT"),
        (f"SELECT a.k FROM s0 a, s1 b {W} HAVING a.k > 1", "HAVING"),
        (f"SELECT a.k FROM s0 a, s1 b {W} UNION ALL SELECT 1", "UNION"),
        ("SELECT a.k FROM (SELECT * FROM s0) a, s1 b", "subquery"),
        (f"SELECT a.k FROM s0 a, s1 b {W} AND a.k IN (SELECT k FROM s2)", "subquery"),
        (f"SELECT a.k FROM s0 a, s1 b {W} AND EXISTS (SELECT 1 FROM s2)", "subquery.*join its stream instead"),
        (
            f"SELECT a.k FROM s0 a, s1 b {W} AND NOT EXISTS (SELECT 1 FROM s2)",
            "NOT EXISTS is an anti join.*LEFT ANTI JOIN",
        ),
        (f"SELECT a.k FROM s0 a, s1 b {W} AND (NOT (EXISTS (SELECT 1 FROM s2)))", "NOT EXISTS is an anti join"),
        (f"SELECT a.k FROM s0 a, s1 b {W} AND a.k NOT IN (SELECT k FROM s2)", "NOT IN is an anti join"),
        (f"SELECT a.k FROM s0 a, s1 b {W} AND NOT NOT EXISTS (SELECT 1 FROM s2)", "join its stream instead"),
        (f"SELECT (SELECT 1) AS x FROM s0 a, s1 b {W}", "subquery.*a stream of its own"),
        (f"WITH c AS (SELECT 1) SELECT a.k FROM s0 a, s1 b {W}", "CTE"),
        (f"SELECT row_number() OVER (ORDER BY a.k) FROM s0 a, s1 b {W}", "OVER"),
        (f"SELECT a.k FROM s0 a, s1 b LATERAL VIEW explode(a.k) t AS x {W}", "LATERAL VIEW"),
        (f"SELECT explode(array(1)) FROM s0 a, s1 b {W}", "generator"),
        (f"SELECT posexplode(array(1)) FROM s0 a, s1 b {W}", "generator"),
        (f"SELECT a.k FROM s0 a, s1 b {W} WINDOW w AS (PARTITION BY a.k)", "named WINDOW"),
        ("SELECT a.k FROM s0 a, s1 b PIVOT (sum(v) FOR k IN (1, 2))", "PIVOT"),
        (f"SELECT a.k FROM s0 a TABLESAMPLE (5 ROWS), s1 b {W}", "TABLESAMPLE"),
        (f"SELECT /*+ BROADCAST(a) */ a.k FROM s0 a, s1 b {W}", "hint"),
        (f"SELECT a.k FROM s0 a, range(10) b {W}", "names of streams"),
        (f"SELECT a.k FROM s0 a, s1 AS b(x, y) {W}", "column aliases"),
        (f"SELECT a.k FROM s0 a, s1 b {W} AND a.k = ?", "parameter"),
        (f"SELECT a.k FROM s0 a, s1 b {W} AND a.k = :p", "parameter"),
        (f"SELECT * EXCEPT (k) FROM s0 a, s1 b {W}", "name the columns"),
        (f"SELECT a.k FROM s0 TIMESTAMP AS OF '2020-01-01' a, s1 b {W}", "time travel"),
        (f"SELECT a.k FROM s0 a, s1 b {W} SORT BY a.k", "SORT BY"),
        (f"SELECT a.k FROM s0 a, s1 b {W} QUALIFY a.k > 1", "QUALIFY"),
    ],
)
def test_refused(bound, text, message):
    with pytest.raises(UnsupportedError, match=f"(?i){message}"):
        bound(text)
