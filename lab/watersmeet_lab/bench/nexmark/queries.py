"""Nexmark's queries that are joins, for three systems: watersmeet, DuckDB over all events at once, and Spark's own streaming.

Definitions are those of Nexmark's Flink suite, with the column names of the generator. Where a query is plain SQL, one text serves all
three. `docs/nexmark.md` says in what a query differs from its definition, and why.

    watersmeet   streams that are late by up to LATENESS, the same for Spark's watermarks
    duckdb       views of all events, closing ones left out
    spark        views with watermarks, append mode
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LATENESS = "4 seconds"
LIFETIME = "1 SECOND"
"""No auction of the generator is open for longer: a third of a second at 10,000 events per second."""
DERIVED: Mapping[str, str] = {
    "highest": "SELECT max(price) AS price, window.end AS date_time FROM bid GROUP BY window(date_time, '10 seconds')"
}
"""Streams that are Spark's own aggregation of a stream, which gets a watermark before."""


@dataclass(frozen=True)
class NexmarkQuery:
    """One query. `spark` is empty if Spark cannot run it, and then `refusal` says why; `groups` are the keys of groups whose value changes."""

    name: str
    title: str
    reads: tuple[str, ...]
    text: str
    duckdb: str
    spark: str
    refusal: str = ""
    groups: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


_Q3 = """
    SELECT p.name, p.city, p.state, a.id
    FROM auction a JOIN person p ON a.seller = p.id
    WHERE a.category = 10 AND p.state IN ('or', 'id', 'ca')
"""

_Q20 = """
    SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_date_time, b.extra AS bid_extra,
        a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_date_time, a.expires, a.seller, a.category,
        a.extra AS auction_extra
    FROM bid b JOIN auction a ON b.auction = a.id
    WHERE a.category = 10
"""

_Q23 = """
    SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra,
        p.id AS person_id, p.name, p.email_address, p.credit_card, p.city, p.state, p.extra AS person_extra,
        a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_date_time, a.expires, a.seller, a.category,
        a.extra AS auction_extra
    FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder
"""

_IN_TIME = "{0}.auction = a.id AND {0}.date_time BETWEEN a.date_time AND a.expires"
_WINNING = f"""
    FROM auction a JOIN bid b ON {_IN_TIME.format("b")}
    LEFT ANTI JOIN bid c ON {_IN_TIME.format("c")} AND c.price > b.price
    LEFT ANTI JOIN bid d ON {_IN_TIME.format("d")} AND d.price = b.price
        AND (d.date_time < b.date_time OR d.date_time = b.date_time AND d.extra < b.extra)
    DWINDOW (a, b) = {LIFETIME} AND DWINDOW (a, c) = {LIFETIME} AND DWINDOW (a, d) = {LIFETIME}
"""
"""A bid wins if in the time of its auction there is no higher one, and no earlier one as high."""

_WON = """a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category, a.extra,
        b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra"""

_FINAL = f"""
    SELECT a.id, a.category, max(b.price) AS final
    FROM auction a JOIN bid b ON {_IN_TIME.format("b")}
    DWINDOW (a, b) = {LIFETIME}
    GROUP BY window(a.date_time, '1 second'), a.id, a.category
"""
_FINAL_DUCKDB = f"""
    SELECT a.id, a.category, max(b.price) AS final
    FROM auction a JOIN bid b ON {_IN_TIME.format("b")}
    GROUP BY a.id, a.category
"""
_FINAL_SPARK = f"""
    SELECT id, category, max(price) AS final
    FROM (
        SELECT a.id, a.category, a.date_time, b.price
        FROM auction a JOIN bid b ON {_IN_TIME.format("b")} AND b.date_time <= a.date_time + INTERVAL {LIFETIME}
    )
    GROUP BY window(date_time, '1 second'), id, category
"""
_Q4_DUCKDB = f"SELECT category, CAST(floor(avg(final)) AS BIGINT) AS final FROM ({_FINAL_DUCKDB}) GROUP BY category"

_Q7 = """
    SELECT b.auction, b.bidder, b.price, b.date_time, b.extra
    FROM bid b JOIN highest h ON b.price = h.price AND b.date_time BETWEEN h.date_time - INTERVAL 10 SECONDS AND h.date_time
"""

_Q8 = """
    SELECT p.id, p.name, timestamp_seconds(unix_seconds(p.date_time) div 10 * 10) AS starttime
    FROM person p LEFT SEMI JOIN auction a
        ON p.id = a.seller AND unix_seconds(p.date_time) div 10 = unix_seconds(a.date_time) div 10
    WINDOW (p, a) = 10 SECONDS
"""
_Q8_DUCKDB = """
    SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECONDS, p.date_time) AS starttime
    FROM person p JOIN auction a
        ON p.id = a.seller AND time_bucket(INTERVAL 10 SECONDS, p.date_time) = time_bucket(INTERVAL 10 SECONDS, a.date_time)
"""
_Q8_SPARK = """
    SELECT p.id, p.name, p.period.start AS starttime
    FROM (SELECT id, name, window(date_time, '10 seconds') AS period FROM person) p
    LEFT SEMI JOIN (SELECT seller, window(date_time, '10 seconds') AS period FROM auction) a
        ON p.id = a.seller AND p.period = a.period
"""

_Q9_DUCKDB = f"""
    SELECT {_WON} FROM auction a JOIN bid b ON {_IN_TIME.format("b")}
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.extra) = 1
"""
_A = "id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra"
_Q9_SPARK = f"""
    SELECT {_A}, won.auction, won.bidder, won.price, timestamp_millis(won.at_ms) AS bid_date_time, won.bid_extra
    FROM (
        SELECT {_A}, min_by(struct(auction, bidder, price, at_ms, bid_extra), struct(-price, at_ms, bid_extra)) AS won
        FROM (
            SELECT a.*, b.auction, b.bidder, b.price, unix_millis(b.date_time) AS at_ms, b.extra AS bid_extra
            FROM auction a JOIN bid b ON {_IN_TIME.format("b")} AND b.date_time <= a.date_time + INTERVAL {LIFETIME}
        )
        GROUP BY {_A}
    )
"""

_Q13 = """
    SELECT b.auction, b.bidder, b.price, b.date_time, s.value
    FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
"""

_TWO_AGGREGATIONS = "an average of maxima is two aggregations. Spark runs a second one in append mode only, where a group without a window never leaves"

ALL = (
    NexmarkQuery("q3", "local item suggestion", ("auction", "person"), _Q3, _Q3, _Q3),
    NexmarkQuery(
        "q4",
        "average winning price of a category",
        ("auction", "bid"),
        f"\n    SELECT a.category, CAST(avg(b.price) AS BIGINT) AS final{_WINNING}    GROUP BY a.category\n",
        _Q4_DUCKDB,
        spark="",
        refusal=_TWO_AGGREGATIONS,
        groups=("category",),
    ),
    NexmarkQuery("q4-inner", "final price of an auction", ("auction", "bid"), _FINAL, _FINAL_DUCKDB, _FINAL_SPARK),
    NexmarkQuery(
        "q7",
        "highest bids of ten seconds",
        ("bid",),
        _Q7,
        f"WITH highest AS (SELECT max(price) AS price, time_bucket(INTERVAL 10 SECONDS, date_time) + INTERVAL 10 SECONDS AS date_time FROM bid GROUP BY 2) {_Q7}",
        f"WITH highest AS ({DERIVED['highest']}) {_Q7}",
        derived=("highest",),
    ),
    NexmarkQuery("q8", "new users who sell", ("person", "auction"), _Q8, _Q8_DUCKDB, _Q8_SPARK),
    NexmarkQuery("q9", "winning bids", ("auction", "bid"), f"\n    SELECT {_WON}{_WINNING}", _Q9_DUCKDB, _Q9_SPARK),
    NexmarkQuery("q13", "bids with a side input", ("bid",), _Q13, _Q13, _Q13, tables=("side_input",)),
    NexmarkQuery("q20", "bids with their auction", ("bid", "auction"), _Q20, _Q20, _Q20),
    NexmarkQuery("q23", "bids of people who sell", ("bid", "person", "auction"), _Q23, _Q23, _Q23),
)
QUERIES: Mapping[str, NexmarkQuery] = {query.name: query for query in ALL}
