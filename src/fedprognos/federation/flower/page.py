"""The coordinator's report: what it may know, on one page that works offline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ d.experiment }}: deployed federation</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
th, td { padding: .25rem .8rem; border-bottom: 1px solid #ccc; text-align: right; }
th:first-child, td:first-child, .left { text-align: left; }
.note { background: #fff6d6; color: #222; padding: .6rem 1rem; border-left: 4px solid #d9a400; }
</style></head><body>
<h1>{{ d.config.title or d.experiment }}</h1>
<p class="note">The coordinator has no test units. All scores are on the <strong>validation</strong> parts that the
sites kept out of training (labels capped as in training), told as sums. The round was chosen on the same parts, so they
flatter a little. What the model is worth on test units is in each site's own report, on the site.</p>
<h2>Methods</h2>
<table><tr><th>method</th><th class="left">head</th><th>seed</th><th class="left">on</th><th>windows</th><th>round</th>
<th>RMSE</th><th>MAE</th><th>bias</th><th>neurons</th><th>parameters</th><th>messages</th><th>MB moved</th></tr>
{% for r in d.rows %}<tr><td>{{ r.method }}{{ " (collapsed)" if r.collapsed }}</td><td class="left">{{ r.head }}</td>
<td>{{ r.seed }}</td><td class="left">{{ r.test_client }}</td><td>{{ r.n_test }}</td><td>{{ r.round }}</td>
<td>{{ "%.4g"|format(r.rmse_capped) }} {{ r.unit }}</td><td>{{ "%.4g"|format(r.mae_capped) }}</td>
<td>{{ "%+.3g"|format(r.bias_capped) }}</td><td>{{ r.width|join("+") }}</td><td>{{ r.parameters }}</td>
<td>{{ r.messages }}</td><td>{{ "%.2f"|format(r.bytes / 1e6) }}</td></tr>
{% endfor %}</table>
<h2>Rounds</h2>
<table><tr><th>method</th><th>seed</th><th class="left">head</th><th>round</th><th>validation RMSE</th><th>neurons</th>
<th>messages so far</th><th>MB so far</th></tr>
{% for r in d.rounds %}<tr><td>{{ r.method }}</td><td>{{ r.seed }}</td><td class="left">{{ r.head }}</td>
<td>{{ r.round }}</td><td>{{ "-" if r.validation_rmse is none else "%.4g"|format(r.validation_rmse) }}</td>
<td>{{ r.width|join("+") }}</td><td>{{ r.messages }}</td><td>{{ "%.2f"|format(r.bytes / 1e6) }}</td></tr>
{% endfor %}</table>
<h2>What came from the sites</h2>
<table><tr><th>site</th><th class="left">message</th><th>number</th><th>kB</th></tr>
{% for site, kinds in received.items() %}{% for kind, n in kinds.items() %}<tr><td>{{ site }}</td>
<td class="left">{{ kind }}</td><td>{{ n.messages }}</td><td>{{ "%.1f"|format(n.bytes / 1e3) }}</td></tr>
{% endfor %}{% endfor %}</table>
<h2>Delivery</h2>
<ul>{% for site, kept in delivered.items() %}
<li>{{ site }}: {{ "has the model" if kept else "has NOT got the model" }}</li>{% endfor %}</ul>
</body></html>
"""


def write_page(
    document: Mapping[str, Any], received: Mapping[str, Mapping[str, Mapping[str, int]]], delivered: Mapping[str, bool]
) -> str:
    """The page as text; whatever sites call themselves is escaped."""
    environment = Environment(autoescape=True)
    return environment.from_string(PAGE).render(d=document, received=received, delivered=delivered)
