"""Dictionaries of Parquet files: for columns whose values repeat, and for no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from watersmeet.runtime.rounds.results.columns import part_files
from watersmeet.runtime.rounds.results.dictionaries import SAMPLE, choose_dictionaries
from watersmeet.runtime.rounds.results.folder import SinkFolder


@pytest.mark.parametrize(("values", "is_chosen"), [(500, True), (5_000, True), (50_000, False)])
def test_a_sample_tells_whether_values_repeat(values: int, is_chosen: bool) -> None:
    drawn = np.random.default_rng(1).integers(0, values, 100_000)
    rows = pa.table({"n": drawn, "text": pa.array(drawn).cast(pa.string()), "gone": pa.nulls(100_000, pa.int8())})
    assert choose_dictionaries(rows) == (["n", "text", "gone"] if is_chosen else ["gone"])


def test_files_have_what_was_chosen(tmp_path: Path) -> None:
    fields = [T.StructField("id", T.LongType()), T.StructField("city", T.StringType())]
    fields.append(T.StructField("tags", T.ArrayType(T.StringType())))
    how = part_files(SinkFolder(str(tmp_path), "sink"), T.StructType(fields), ())
    count = 2 * SAMPLE
    rows = pa.table([range(count), ["Rome", None] * SAMPLE, [["a"]] * count], names=how.columns.names)
    with how.open("part-0") as writer:
        writer.write(rows)
        (part,) = writer.close()
    file = pq.ParquetFile(tmp_path / part.path)
    columns = [file.metadata.row_group(0).column(n) for n in range(3)]
    assert {c.path_in_schema for c in columns if c.has_dictionary_page} == {"city", "tags.list.element"}
    assert file.read().to_pydict() == rows.to_pydict()
