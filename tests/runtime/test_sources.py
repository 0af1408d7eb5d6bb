"""What is noticed about a stream's source when a query is bound."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

import watersmeet as wm
from watersmeet.runtime import sources


def frame(**metadata) -> SimpleNamespace:
    """What a DataFrame says of itself."""
    schema = StructType([StructField("k", LongType()), StructField("ts", TimestampType(), metadata=metadata)])
    dtypes = [(f.name, f.dataType.simpleString()) for f in schema.fields]
    return SimpleNamespace(isStreaming=True, schema=schema, dtypes=dtypes, columns=schema.names)


@pytest.mark.parametrize(("delay_ms", "span"), [(10_000, "10 seconds"), (1_500, "1.5 seconds"), (0, "0 seconds")])
def test_a_watermark_on_an_input_is_noticed(delay_ms, span):
    stream = wm.Stream(frame(**{"spark.watermarkDelayMs": delay_ms}), time="ts")
    with pytest.warns(UserWarning, match=rf"stream clicks: withWatermark\('ts', '{span}'\).*lateness='{span}'"):
        spec = sources.spec("clicks", stream)
    assert spec.lateness_us == 0
    assert wm.Stream(stream.source, time="ts", lateness=span).lateness_us == delay_ms * 1000


def test_other_metadata_is_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sources.spec("clicks", wm.Stream(frame(comment="when it was clicked"), time="ts"))
