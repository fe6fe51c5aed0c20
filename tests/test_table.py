"""Tables are text in Python and on terminals, and tables in notebooks."""

import copy
import pickle

import simfloat as sf
from simfloat.common import Table, table

ROWS = [("name", "count"), ("a", "10"), ("longer", "3")]


def test_a_table_is_its_text_with_numbers_on_the_right():
    shown = table(ROWS, number_columns=1)
    assert shown == repr(shown) == "name    count\na          10\nlonger      3"
    assert table(ROWS) == "name    count\na       10\nlonger  3", "nothing stands at the ends of lines"
    assert isinstance(shown, str) and table([]) == ""


def test_a_cell_may_have_several_lines():
    shown = table([("a", "b", "1"), ("c\nlonger", "d", "23\n4")], number_columns=1)
    assert shown == "a       b   1\nc       d  23\nlonger      4"
    assert "c<br>longer" in shown._repr_html_() and shown._repr_html_().count("<tr>") == 2


def test_notebooks_draw_it_and_text_is_text():
    drawn = table([("<b>", "&")], has_head=False)._repr_html_()
    assert "&lt;b&gt;" in drawn and "&amp;" in drawn and "<th" not in drawn
    drawn = table(ROWS, number_columns=1)._repr_html_()
    assert drawn.count("<th") == 2 and drawn.count("<tr>") == 3 and drawn.count("text-align: right") == 3


def test_copies_and_pickles_are_drawn_too():
    shown = table(ROWS, number_columns=1)
    for same in (copy.deepcopy(shown), pickle.loads(pickle.dumps(shown))):
        assert type(same) is Table and same == shown and same._repr_html_() == shown._repr_html_()


def test_a_format_is_drawn_with_its_facts():
    drawn = sf.FP16._repr_html_()
    assert "<b>FP16</b>" in drawn and "65504.0  0x7bff" in drawn
    assert "&lt;script&gt;" in sf.Format(5, 10, name="<script>")._repr_html_()


def test_a_policy_and_what_it_explains_are_drawn():
    policy = sf.policies["bf16-standard"].override("head", compute=sf.FP32)
    explained = policy.explain(sf.nn.MLP([2, 2, 1]))
    assert f"{explained}" == str(explained) == explained and isinstance(explained, Table)
    assert explained._repr_html_().count("<tr>") == len(explained.splitlines())
    drawn = policy._repr_html_()
    assert "bf16-standard" in drawn and ">compute</td>" in drawn and "override(&#x27;head&#x27;" in drawn


def test_a_recorder_is_drawn_as_its_table():
    recorder = sf.Recorder(path="<x>")
    assert recorder._repr_html_() == "<code>Recorder(path=&#x27;&lt;x&gt;&#x27;)</code>"
    recorder = sf.Recorder()
    sf.round([1e9, 0.1], sf.FP16, observer=recorder)
    assert recorder._repr_html_() == recorder.table()._repr_html_() and "<th" in recorder._repr_html_()
    assert repr(recorder) == recorder.table() == str(recorder)
