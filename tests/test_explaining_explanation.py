"""What was found is shown to people as tables and sentences, and to programs as plain data."""

import dataclasses
import json
import re

from explained import explained, facts, net, row

from altmin.explaining import Explanation
from altmin.explaining.rows import Facts, Milliseconds, Row


def test_it_is_plain_data_for_programs() -> None:
    found = explained(net())
    again = json.loads(json.dumps(found.to_dict()))
    assert set(again) == {"facts", "rows", "advice"}
    assert set(again["facts"]) == {field.name for field in dataclasses.fields(Facts)}
    assert [set(each) for each in again["rows"]] == [{field.name for field in dataclasses.fields(Row)}] * 3
    assert again["rows"][1]["time"]["codes"] == found.rows[1].time.codes
    assert again["rows"][0]["cosine"] == found.rows[0].cosine
    assert again["advice"] == found.advice


def test_the_text_has_each_block_its_numbers_and_the_advice() -> None:
    rows = [row(0, cosine=0.4321, movement=None, dead=0.25), row(1, modules="ReLU, Linear", through_autograd=("S",))]
    text = str(Explanation(rows, facts(loss=1.25), ["Do this [sic].", "And that."]))
    assert "2 blocks, 200 parameters" in text
    assert "one step of am-adam, 24 samples, loss 1.2500" in text
    assert re.search(r"0 │ Linear +│ +10 │ +100 │ closed forms", text)
    assert re.search(r"1 │ ReLU, Linear +│ +10 │ +100 │ autograd", text)
    assert re.search(r"0 │ +│ +0.1 │ +0.01 │ +25% │ +0.1 │ +1 │ +0.4321 │ +0.01", text)
    assert text.splitlines()[-2:] == ["- Do this [sic].", "- And that."]
    assert max(map(len, text.splitlines())) <= 120


def test_the_parts_of_a_step_add_up_with_the_update_of_all_weights() -> None:
    """3 + 3 ms in blocks and 4 ms in the update: 30% each."""
    rows = [row(l, time=Milliseconds(1.0, 1.5, 0.5)) for l in range(2)]
    text = str(Explanation(rows, facts(update=4.0), []))
    assert re.findall(r"1.00 │ +1.50 │ +0.50 │ +(\d+)%", text) == ["30", "30"]
    assert "updating all weights: 4.00 ms, 40%" in text


def test_a_net_without_derivatives_is_said_to_be_held_against_an_estimate() -> None:
    assert "backprop" not in str(Explanation([row()], facts(estimated=True), []))
