"""The report: bootstrap limits against SciPy's and known distributions; its table, its JSON and its page."""

import base64
import io
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import soundfile
from matplotlib.image import imread
from scipy import stats

from common.quality import report
from common.quality.report import Interval, ReportLine, System
from common.quality.words import Errors
from tests.sounds import RATE, tone


def line(text: str, errors: int, count: int, **values: float) -> ReportLine:
    sound, pictures = tone(0.5).astype(np.float32), {"mel": np.linspace(-11, 1, 12 * 30).reshape(12, 30)}
    return ReportLine(text, sound, text.lower(), values, {"wer": Errors(errors, count), "cer": Errors(0, 9)}, pictures)


def system(name: str = "ours") -> System:
    lines = [line("One.", 0, 1, mos=3.0), line("Two <b> & three.", 3, 4, mos=2.0, mcd=6.0)]
    return System(name, [*lines, line("Four five.", 0, 5, mos=1.0)], 2.5)


def test_words_are_pooled_and_scores_are_averaged() -> None:
    found = report.summary(system())
    assert found["wer"].value == pytest.approx(3 / 10)  # not the mean of 0, 3/4 and 0
    assert found["mos"].value == pytest.approx(2.0)
    assert found["mcd"].value == 6.0 and math.isnan(found["mcd"].low)  # one line only: nothing can be said of others
    assert "f0_rmse" not in found
    assert found["wer"].low <= 0.3 <= found["wer"].high
    assert 1.0 <= found["mos"].low < 2.0 < found["mos"].high <= 3.0  # of draws from 1, 2, 3


def test_json_holds_all_numbers_and_no_nan() -> None:
    still = System("still", [line("One.", 0, 1, f0_rmse=math.nan)], math.nan)
    written = json.dumps(report.as_json([system(), still], {"seed": 0}))
    read = json.loads(written, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    first, second = read["systems"]
    assert first["summary"]["wer"][0] == pytest.approx(0.3)
    assert first["lines"][1]["counts"]["wer"] == {"errors": 3, "count": 4}
    assert first["lines"][1]["values"] == {"mos": 2.0, "mcd": 6.0}
    assert second["lines"][0]["values"]["f0_rmse"] is None and second["real_time_factor"] is None
    assert read["settings"] == {"seed": 0}


def test_a_clip_of_minutes_and_a_line_that_was_not_spoken_have_a_place_on_the_page() -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 130 * RATE).astype(np.float32)
    long = System("x", [ReportLine("One.", noise, "", {}, {}, {})], 1.0)
    (sound,) = re.findall(r'base64,([^"]+)"', report.page("long", [long], long, RATE))
    assert soundfile.info(io.BytesIO(base64.b64decode(sound))).frames == 130 * RATE
    nothing = ReportLine("One.", np.zeros(0), "", {}, {"wer": Errors(1, 1)}, {"mel": np.zeros((12, 0))})
    still = System("still", [nothing], math.nan)
    text = report.page("nothing", [still], still, RATE)
    assert "WER % 100.0" in text and "<img" not in text


def test_the_page_embeds_its_sounds_and_pictures() -> None:
    text = report.page("A <title>", [system(), system("theirs")], system(), RATE)
    assert "A &lt;title&gt;" in text and "Two &lt;b&gt; &amp; three." in text and "<b> &" not in text
    assert re.findall(r"<h3>(\d)\. line (\d)", text) == [("1", "2"), ("2", "3"), ("3", "1")]
    sounds = re.findall(r'src="data:audio/ogg;base64,([^"]+)"', text)
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert len(sounds) == len(pictures) == 6
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(sounds[0])))
    assert (rate, len(samples), np.abs(np.fft.rfft(samples)).argmax()) == (
        RATE,
        RATE // 2,
        220,
    )  # half a second of 440 Hz
    picture = imread(io.BytesIO(base64.b64decode(pictures[0])))
    assert picture.shape[:2] == (12, 30) and "http" not in text
    assert picture[-1, 0, :3].sum() < picture[0, -1, :3].sum()  # the first row, the lowest value, is below and dark


class Elements(HTMLParser):
    """The elements and the text of a page, as a browser parses it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_no_text_of_a_report_becomes_markup() -> None:
    attack = """<script>alert("1")</script> & 'so' {{ 7 * 7 }} <img src=x onerror=y>"""
    sound, picture = np.zeros(100, np.float32), np.zeros((2, 3))
    spoken = ReportLine(attack, sound, attack, {}, {"wer": Errors(1, 2)}, {attack: picture})
    harmless = spoken._replace(text="plain", transcript="plain", pictures={"plain": picture})
    bad, good = (System(name, [each], math.nan) for name, each in ((attack, spoken), ("plain", harmless)))
    parsed = Elements(report.page(attack, [bad], bad, RATE))
    assert parsed.names == Elements(report.page("plain", [good], good, RATE)).names
    assert parsed.texts.count(attack) >= 6  # title, heading, table, order, box, transcript
    assert any(text.endswith(f"line 1: {attack}") for text in parsed.texts)


def test_nan_lines_are_passed_over_and_pooled_rate_weighs_words() -> None:
    values = np.array([1.0, math.nan, 3.0, math.nan, 3.0])
    assert report.bootstrap(values).value == pytest.approx(7 / 3)
    pairs = np.array([(1, 2), (0, 8)])
    assert report.pooled_rate(pairs) == 0.1  # where the mean of the rates is 0.25
    assert math.isnan(report.pooled_rate(np.array([(2, 0)])))
    assert report.bootstrap([(3, 10)] * 5, report.pooled_rate) == Interval(0.3, 0.3, 0.3)
    for values in ([], [math.nan], [0.5], [math.nan, 0.5, math.nan]):  # one number has no limits
        value, *limits = report.bootstrap(values)
        assert all(map(math.isnan, limits)) and (value == 0.5 if 0.5 in values else math.isnan(value))


def test_limits_are_scipys() -> None:
    values = np.random.default_rng(1).gamma(2.0, size=60)
    wanted = stats.bootstrap([values], np.mean, n_resamples=1000, method="percentile", rng=np.random.default_rng(0))
    limits = wanted.confidence_interval
    assert report.bootstrap(values) == pytest.approx((values.mean(), limits.low, limits.high), rel=1e-12)


def test_the_table_has_what_was_measured_and_is_folded_to_the_width_of_the_terminal() -> None:
    systems = [System("recordings", [line("One.", 0, 1)], math.nan), system()]
    wide = report.table(systems, 1000).splitlines()
    head, first, second = map(str.rstrip, wide)
    assert re.findall(r"WER %|CER %|MOS|MCD dB|F0 Hz", head) == ["WER %", "CER %", "MOS", "MCD dB"]
    assert first.endswith("-") and "30.0 [" in second and second.endswith("2.50")
    folded = report.table(systems, 60)
    assert max(map(len, wide)) > 60 >= max(map(len, folded.splitlines()))
    blocks = [block.splitlines() for block in folded.split("\n\n")]
    assert len(blocks) > 1 and all(len(block) == 3 for block in blocks)
    for row in range(3):
        name, *words = wide[row].split()
        assert [word for block in blocks for word in block[row].split() if word != name] == words
    assert report.table(systems, 1).count("\n\n") == len(report.columns_of(systems))  # one measure each
