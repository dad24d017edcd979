(function () {
  "use strict";
  const SHOWN = 200;
  const { NAMES, TITLES, number, value, distrusted, doubts, doubt, range, dateOf, age, moment, cycleOf, $, node } = Words;
  const { ask, connection } = Link;
  const ORDER = Object.keys(NAMES);
  // What is shown of the fleet: a status, a site, an order, and the cursors of the pages up to this one.
  const chosen = { status: "", site: "", sort: "urgency" };
  let cursors = [""];
  let following = null;
  const units = new Map();
  const lines = new Map();
  let fleet = null;
  let total = 0;
  let open = null;
  let cameFrom = null;
  let loadedUnit = null;

  function say(text) {
    if ($("news").textContent !== text) $("news").textContent = text;
  }

  // --- what the service says -----------------------------------------------------------------
  function receive(kind, message) {
    Link.beat(message.stalled_in_s);
    if (Alerts.heard(message.alerts)) {
      Models.forget(); // another one may serve
      loadSoon();
    }
    if (kind === "beat") return;
    if (fleet && message.refused !== fleet.refused) loadSoon(); // to show which
    if (kind === "reload") return loadSoon();
    const search = $("search").value.trim().toLocaleLowerCase();
    const part = search || chosen.status || chosen.site || chosen.sort !== "urgency" || cursors.length > 1;
    for (const unit of message.units) {
      if (unit.status === "ended") units.delete(unit.unit); // another life of the machine has begun
      else if (!part || units.has(unit.unit)) units.set(unit.unit, unit);
      if (unit.unit === open) loadUnit();
    }
    for (const name of message.forgotten) {
      units.delete(name);
      if (name === open) loadUnit();
    }
    if (!part) total = Object.values(message.counts).reduce((sum, count) => sum + count, 0);
    if (part || total > SHOWN) loadSoon(); // which units come next, only the service knows
    showCounts(message.counts);
    showTable(message.units.map((unit) => unit.unit));
  }
  let loading = 0;
  function loadSoon() {
    if (loading) return;
    loading = setTimeout(() => {
      loading = 0;
      load();
    }, 2000);
  }

  /* Where the model comes from, as far as its bundle says. */
  function origin(model) {
    const owners = model.trained_by.length;
    const by = owners > 3 ? `${owners} owners` : model.trained_by.join(", ");
    return (
      (model.experiment ? ` · from ${model.experiment}` : "") +
      (model.method ? `, ${model.method}` : "") +
      (by ? ` · trained by ${by}` : "") +
      (model.units === null ? "" : ` on ${model.units} units`)
    );
  }

  async function load() {
    try {
      fleet = await ask("/v1/fleet");
      Words.setFleet(fleet);
      Words.setNow(fleet.now);
      const name = fleet.target.toUpperCase() === "RUL" ? "RUL" : fleet.target;
      $("health-name").textContent = fleet.target_measure ? `${name}, ${fleet.target_measure}` : name;
      $("model").textContent =
        (fleet.task === "rul" ? "Remaining useful life" : (fleet.task === "forecast" ? "Forecast: " : "State of health: ") + fleet.target) +
        (fleet.target_measure ? " in " + fleet.target_measure : "") +
        (fleet.threshold === null ? "" : ` · maintenance due at ${number(fleet.threshold)}`) +
        (fleet.coverage === null
          ? ` · no intervals: ${fleet.no_intervals}`
          : ` · intervals should hold ${Math.round(100 * fleet.coverage)} %`) +
        (fleet.unchecked.length ? ` · not checked: ${fleet.unchecked.join("; ")}` : "") +
        (fleet.signed_by === null ? " · signature not checked" : ` · signed by ${fleet.signed_by.join(", ")}`) +
        origin(fleet.origin) +
        (fleet.filled ? ` · ${fleet.filled} blank values filled` : "");
      $("position-name").textContent = fleet.position_name;
      showRefusals();
      Models.load(fleet);
      showSites();
      const answer = await ask(`/v1/units?limit=${SHOWN}&cursor=${cursors.at(-1)}&${filters()}`);
      if (!answer.units.length && cursors.length > 1) return turn([""]); // the last page has emptied
      total = answer.total;
      following = answer.next;
      units.clear();
      for (const unit of answer.units) units.set(unit.unit, unit);
      showCounts(fleet.counts);
      showTable([]);
      Calendar.load($("search").value.trim(), chosen.site, fleet);
    } catch (error) {
      connection("lost", "not connected: " + error.message);
    }
  }

  function showRefusals() {
    $("refusals").hidden = !fleet.refused;
    $("refusals-title").textContent = `${fleet.refused} row${fleet.refused === 1 ? "" : "s"} refused since the service was started`;
    $("refusals-list").replaceChildren(...fleet.refusals.slice(-20).reverse().map((row) =>
      node("li", `${new Date(1000 * row.received).toLocaleTimeString()} ${row.unit === null ? "" : row.unit + ": "}${row.reason}`)));
  }

  // --- which part of the fleet ---------------------------------------------------------------
  function filters() {
    const given = { q: $("search").value.trim(), sort: chosen.sort };
    if (chosen.status) given.status = chosen.status;
    if (chosen.site) given.site = chosen.site;
    return new URLSearchParams(given).toString();
  }
  function turn(pages) {
    cursors = pages;
    return load();
  }
  function choose(changes) {
    Object.assign(chosen, changes);
    for (const head of document.querySelectorAll("[data-sort]")) {
      const mine = chosen.sort.replace("-", "") === head.dataset.sort;
      const way = chosen.sort.startsWith("-") ? "descending" : "ascending";
      head.closest("th").setAttribute("aria-sort", mine ? way : "none");
    }
    for (const card of $("counts").children) card.setAttribute("aria-pressed", String(card.dataset.status === chosen.status));
    return turn([""]);
  }
  function showSites() {
    $("site-choice").hidden = !fleet.sites.length;
    const names = ["", ...fleet.sites];
    if ($("site").options.length === names.length) return;
    $("site").replaceChildren(...names.map((name) => new Option(name || "all sites", name, false, name === chosen.site)));
  }
  $("site").addEventListener("change", () => choose({ site: $("site").value }));
  document.querySelectorAll("[data-sort]").forEach((head) => head.addEventListener("click", () => {
    const again = chosen.sort === head.dataset.sort;
    choose({ sort: (again ? "-" : "") + head.dataset.sort });
  }));
  $("earlier").addEventListener("click", () => turn(cursors.slice(0, -1)));
  $("later").addEventListener("click", () => turn([...cursors, following]));
  $("export").addEventListener("click", async () => {
    try {
      const link = node("a");
      link.href = URL.createObjectURL(await ask("/v1/units.csv?" + filters(), "GET", undefined, (answer) => answer.blob()));
      link.download = "fleet.csv";
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      say(error.message);
    }
  });

  // --- the fleet -----------------------------------------------------------------------------
  function showCounts(counts) {
    const list = $("counts");
    for (const status of ORDER) {
      let card = list.querySelector("." + status);
      if (!card) {
        card = node("button", undefined, status);
        card.type = "button";
        card.dataset.status = status;
        card.setAttribute("aria-pressed", "false");
        card.append(node("span", undefined, "count"), node("span", TITLES[status], "title"));
        card.addEventListener("click", () => choose({ status: chosen.status === status ? "" : status }));
        list.append(card);
      }
      card.firstElementChild.textContent = String(counts[status]);
    }
    say(`${counts.due} units due for maintenance, ${counts.soon} may be due soon, ${counts.unknown} to be checked.`);
    const urgent = [counts.due ? `${counts.due} due` : "", counts.unknown ? `${counts.unknown} to check` : ""].filter(Boolean);
    document.title = urgent.length ? `(${urgent.join(", ")}) Fleet` : "Fleet";
  }
  function before(a, b) {
    const rank = (u) => (u.health && u.health.value !== null ? u.health.value : Infinity);
    const places = ORDER.indexOf(a.status) - ORDER.indexOf(b.status);
    if (places) return places;
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    return a.unit < b.unit ? -1 : 1;
  }
  function scale() {
    const seen = Array.from(units.values(), (u) => (u.health && u.health.value !== null ? Math.max(u.health.value, u.health.high || 0) : 0));
    return fleet && fleet.cap ? fleet.cap * 1.3 : Math.max(...seen, 1e-9) * 1.05;
  }
  function line(name) {
    let row = lines.get(name);
    if (row) return row;
    row = node("tr");
    const head = node("th");
    head.scope = "row";
    const link = node("a", name);
    link.href = "#unit=" + encodeURIComponent(name);
    link.title = name;
    head.append(link);
    const cells = ["", "number", "span", "trend", "number minor", "number age", "trust"].map((c) => node("td", undefined, c));
    row.append(head, ...cells);
    row.addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      location.hash = link.hash;
    });
    lines.set(name, row);
    return row;
  }
  function fill(row, unit, most) {
    const [, status, amount, picture, trend, cycle, old, trust] = row.children;
    const health = unit.health;
    status.replaceChildren(node("span", NAMES[unit.status], "status " + unit.status));
    if (doubts(health).length) status.append(node("span", doubts(health).join(", "), "doubt"));
    if (unit.silent_since !== null) status.append(node("span", "silent", "doubt"));
    amount.classList.toggle("distrusted", distrusted(health));
    amount.replaceChildren(document.createTextNode(value(health)), node("span", range(health), "range"));
    picture.replaceChildren(Chart.span(health, fleet.threshold, most, 180));
    const values = unit.spark;
    const words = values.length > 1 ? `from ${number(values[0])} to ${number(values.at(-1))}` : "no trend yet";
    trend.replaceChildren(Chart.spark(values, 96, 26, words));
    cycle.textContent = dateOf(cycleOf(unit)) || String(cycleOf(unit));
    old.dataset.received = unit.received;
    old.textContent = age(unit.received);
    const silent = unit.silent_since === null ? "" : "silent since " + moment(unit.silent_since);
    trust.textContent = [silent, doubt(health)].filter(Boolean).join("; ");
    trust.title = health ? health.reason : "";
  }
  function showTable(changed) {
    if (!fleet) return;
    const listed = Array.from(units.values()); // other orders stay as the service gave them
    const shown = (chosen.sort === "urgency" ? listed.sort(before) : listed).slice(0, SHOWN);
    const names = new Set(shown.map((unit) => unit.unit));
    for (const name of Array.from(units.keys())) if (!names.has(name)) units.delete(name);
    for (const [name, row] of lines) {
      if (!names.has(name)) {
        row.remove();
        lines.delete(name);
      }
    }
    const body = $("rows");
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const most = scale();
    const fresh = new Set(changed);
    shown.forEach((unit, k) => {
      const row = line(unit.unit);
      if (!row.isConnected || fresh.has(unit.unit) || !changed.length) fill(row, unit, most);
      if (body.children[k] !== row) body.insertBefore(row, body.children[k] || null);
      if (fresh.has(unit.unit)) {
        row.classList.remove("fresh");
        requestAnimationFrame(() => row.classList.add("fresh"));
      }
    });
    if (focused && focused.isConnected) focused.focus({ preventScroll: true }); // a row that moves loses it
    const searching = $("search").value.trim();
    const first = SHOWN * (cursors.length - 1) + 1;
    $("shown").textContent = total > shown.length ? `${first} to ${first + shown.length - 1} of ${total} units` : `${total} units`;
    $("pages").hidden = cursors.length === 1 && following === null;
    $("earlier").disabled = cursors.length === 1;
    $("later").disabled = following === null;
    $("empty").hidden = shown.length > 0;
    $("empty").textContent = searching ? `No unit's name contains “${searching}”.`
      : chosen.status || chosen.site ? "No unit matches."
      : "No rows yet. Units appear here when their first row is posted to /v1/rows.";
  }
  let typing = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => turn([""]), 200);
  });
  setInterval(() => {
    document.querySelectorAll("[data-received]").forEach((cell) => {
      cell.textContent = (cell.dataset.before || "") + age(Number(cell.dataset.received)) + (cell.dataset.after || "");
    });
  }, 5000);

  // --- one unit ------------------------------------------------------------------------------
  const WHY_EVERY_IN_MS = 30000;
  let explainedAt = 0;
  async function loadWhy(name) {
    const again = explainedAt > 0;
    explainedAt = Date.now();
    if (!again) UnitPage.awaitWhy();
    try {
      const explained = await ask("/v1/why/" + encodeURIComponent(name));
      if (name === open) UnitPage.showWhy(explained);
    } catch (error) {
      if (name === open) $("why").hidden = true; // too many rows to explain
    }
  }
  let waiting = 0;
  function loadUnit() {
    if (waiting) return;
    waiting = setTimeout(async () => {
      waiting = 0;
      const name = open;
      if (name === null) return;
      try {
        const unit = await ask("/v1/units/" + encodeURIComponent(name));
        if (name !== open) return;
        Words.setNow(unit.now);
        loadedUnit = name;
        UnitPage.show(unit, fleet);
        const known = unit.health && unit.health.value !== null;
        if (known && Date.now() - explainedAt > WHY_EVERY_IN_MS) loadWhy(name);
        $("forget").hidden = false;
      } catch (error) {
        if (name !== open) return;
        UnitPage.clear();
        $("verdict").replaceChildren(node("p", error.message));
        $("forget").hidden = true;
      }
    }, loadedUnit === open ? 700 : 0);
  }
  addEventListener("resize", () => {
    if (open !== null) UnitPage.redraw();
  });
  $("forget").addEventListener("click", () => {
    $("forget-name").textContent = open;
    $("forget-problem").textContent = "";
    $("forget-dialog").returnValue = "";
    $("forget-dialog").showModal();
  });
  $("forget-form").addEventListener("submit", async (event) => {
    if (event.submitter.value !== "forget") return;
    event.preventDefault();
    const name = $("forget-name").textContent;
    event.submitter.disabled = true; // a second press would ask again
    try {
      await ask("/v1/units/" + encodeURIComponent(name), "DELETE");
      $("forget-dialog").close();
      units.delete(name);
      showTable([]);
      say(`Unit ${name} is forgotten.`);
      location.hash = "";
    } catch (error) {
      $("forget-problem").textContent = error.message;
    } finally {
      event.submitter.disabled = false;
    }
  });

  $("acknowledge").addEventListener("click", () => Maintenance.open(open, "acknowledgement"));
  $("maintain").addEventListener("click", () => Maintenance.open(open));

  // --- where we are --------------------------------------------------------------------------
  function route() {
    const found = /^#unit=(.+)$/.exec(location.hash);
    let name = null;
    try {
      name = found ? decodeURIComponent(found[1]) : null;
    } catch (error) {
      name = null;
    }
    if (name === null && open !== null) cameFrom = open;
    open = name;
    $("fleet").hidden = open !== null;
    $("unit").hidden = open === null;
    if (open === null) {
      const row = cameFrom === null ? null : lines.get(cameFrom);
      if (row) row.querySelector("a").focus();
      return;
    }
    UnitPage.clear();
    loadedUnit = null;
    explainedAt = 0;
    $("unit-name").textContent = open;
    $("unit-name").focus();
    scrollTo(0, 0);
    clearTimeout(waiting);
    waiting = 0;
    if (fleet) loadUnit();
  }
  $("back").addEventListener("click", (event) => {
    event.preventDefault();
    location.hash = "";
  });
  addEventListener("hashchange", route);

  async function start() {
    await load();
    if (fleet === null) {
      if (!$("login").open) setTimeout(start, 3000);
      return;
    }
    follow();
    route();
    Alerts.load();
  }
  // A hidden page asks now and then, for the counts in its title.
  const HIDDEN_EVERY_IN_MS = 30000;
  let asking = 0;
  function follow() {
    clearInterval(asking);
    if (document.hidden) {
      Link.pause();
      asking = setInterval(load, HIDDEN_EVERY_IN_MS);
    } else Link.follow(receive, load);
  }
  document.addEventListener("visibilitychange", () => {
    if (fleet === null) return;
    follow();
    if (document.hidden) return;
    load();
    if (open !== null) loadUnit();
  });
  addEventListener("pagehide", Link.pause); // a page that the browser keeps for "back" would hold its connection
  addEventListener("pageshow", (event) => {
    if (event.persisted && fleet !== null) follow();
  });
  Link.onLogin(start);
  start();
})();
