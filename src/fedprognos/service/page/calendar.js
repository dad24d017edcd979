// The fleet's due dates, week by week.
const Calendar = (function () {
  "use strict";
  const SHOWN_WEEKS = 12;
  const AGAIN_IN_MS = 60000;
  const { day, $, node } = Words;
  const { ask } = Link;
  let last = { query: null, at: 0 };

  // The list changes slowly: rows that stream in do not load it again at once.
  async function load(search, site, fleet) {
    const given = { limit: 1000, ...(search && { q: search }), ...(site && { site }) };
    const query = new URLSearchParams(given).toString();
    if (fleet.threshold === null || (query === last.query && Date.now() - last.at < AGAIN_IN_MS)) return;
    last = { query, at: Date.now() };
    try {
      const answer = await ask("/v1/calendar?" + query);
      if (query === last.query) show(answer);
    } catch (error) {
      last.at = 0; // the next load tries again; that the service is gone is said elsewhere
    }
  }
  function monday(date) {
    const start = new Date(date.getFullYear(), date.getMonth(), date.getDate());
    start.setDate(start.getDate() - ((start.getDay() + 6) % 7));
    return start;
  }
  function show(answer) {
    const today = new Date(1000 * answer.now);
    const horizon = monday(today);
    horizon.setDate(horizon.getDate() + 7 * SHOWN_WEEKS);
    const weeks = new Map();
    for (const entry of answer.entries) {
      const date = entry.status === "due" ? today : new Date(entry.date + "Z");
      const start = monday(date < today ? today : date);
      const title = entry.status === "due" ? "Due now" : start >= horizon ? "Later"
        : start <= today ? "This week" : "Week of " + start.toLocaleDateString(undefined, { day: "numeric", month: "short" });
      if (!weeks.has(title)) weeks.set(title, []);
      weeks.get(title).push(item(entry));
    }
    $("weeks").replaceChildren(...[...weeks].flatMap(([title, items]) => {
      const list = node("dd");
      list.append(...items);
      return [node("dt", `${title} (${items.length})`), list];
    }));
    const more = answer.total - answer.entries.length;
    $("calendar-text").textContent = "When maintenance is due, at the pace of the last two weeks." +
      (more ? ` ${more} later ones are not listed.` : "") +
      (answer.undated ? ` No date is known for ${answer.undated} of ${answer.total + answer.undated} units.` : "");
    $("calendar").hidden = !answer.total;
  }
  function item(entry) {
    const line = node("span");
    const link = node("a", entry.unit);
    link.href = "#unit=" + encodeURIComponent(entry.unit);
    line.append(link);
    if (entry.status !== "due") {
      const date = node("span", " " + day(entry.date), "note");
      if (entry.earliest) date.title = `${day(entry.earliest)} to ${entry.latest ? day(entry.latest) : "unknown"}`;
      line.append(date);
    }
    return line;
  }
  return { load };
})();
