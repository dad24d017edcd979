// The second model: how it differs from the one that serves, and who lets it serve.
const Models = (function () {
  "use strict";
  const { NAMES, number, $, node } = Words;
  const { ask } = Link;
  const SHOWN = 5;
  const LEAST_FAILURES = 5;
  const COMPARED_EVERY_IN_MS = 20000; // to compare all units takes the service as long as many rows do
  let comparedAt = 0;
  const time = (seconds) => new Date(1000 * seconds).toLocaleString();
  const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
  const measured = (value, measure) => number(value) + (measure ? " " + measure : "");

  function named(model) {
    const { experiment, method } = model.origin;
    return `${[experiment, method].filter(Boolean).join(", ") || "no origin given"} (${model.digest.slice(0, 8)})`;
  }
  function differences(answer, measure) {
    const { units, median_difference: middle, largest_difference: most, largest_unit: unit } = answer.comparison;
    if (!units) return "No unit has a value of both models yet.";
    return `Both models give a value for ${count(units, "unit")}. Half of these values differ by ${measured(middle, measure)} or less, the most by ${measured(most, measure)} (${unit}).`;
  }
  function errors(answer, measure) {
    const past = answer.outcomes;
    if (past === null) return "";
    if (!past.failures) return "No failure is recorded yet, so nobody can say which model is closer to the truth. Record failures as maintenance.";
    const [ours, theirs] = [past.serving_error, past.shadow_error];
    const failed = `Before ${count(past.failures, "failure")} the model in use was off by ${measured(ours, measure)} on average, the second one by ${measured(theirs, measure)}.`;
    if (past.failures < LEAST_FAILURES) return `${failed} These are too few failures to say which model is closer to the truth.`;
    const better = theirs < ours ? "The second model was closer." : theirs > ours ? "The model in use was closer." : "Both were equally close.";
    return `${failed} ${better}`;
  }
  function changed(answer) {
    const { changed: all, changed_units: units } = answer.comparison;
    if (!all) return ["With the second model no unit would change its status."];
    const link = (unit) => {
      const target = node("a", unit.unit);
      target.href = "#unit=" + encodeURIComponent(unit.unit);
      return target;
    };
    const parts = [`With the second model ${count(all, "unit")} would change status: `];
    units.slice(0, SHOWN).forEach((unit, k) => parts.push(k ? ", " : "", link(unit), ` from ${NAMES[unit.serving_status]} to ${NAMES[unit.shadow_status]}`));
    if (all > SHOWN) parts.push(` and ${all - SHOWN} more`);
    return [...parts, "."];
  }
  async function load(fleet) {
    if (Date.now() < comparedAt + COMPARED_EVERY_IN_MS) return;
    comparedAt = Date.now();
    let answer;
    try {
      answer = await ask("/v1/models");
    } catch (error) {
      comparedAt = 0;
      return; // the page says elsewhere that the service does not answer
    }
    const { serving, shadow } = answer;
    $("models").hidden = shadow === null;
    if (shadow === null) return;
    const measure = fleet.target_measure;
    const lines = [[`In use since ${time(serving.since)}: ${named(serving)}.`], [`Runs along since ${time(shadow.since)}: ${named(shadow)}. It has read ${count(shadow.rows, "row")}.`]];
    if (shadow.problem) lines.push([`It failed and runs along no longer: ${shadow.problem}`]);
    if (answer.comparison !== null) lines.push([differences(answer, measure)], changed(answer), [errors(answer, measure)]);
    const last = answer.changes.find((change) => change.kind !== "start");
    if (last) lines.push([`${last.kind === "promote" ? "Promoted" : "Rolled back"} by ${last.who}, ${time(last.at)}${last.note ? ": " + last.note : ""}.`]);
    $("models-text").replaceChildren(...lines.filter(([first]) => first).map((parts) => {
      const line = node("p");
      line.append(...parts);
      return line;
    }));
    $("promote").hidden = answer.comparison === null || answer.can_roll_back;
    $("roll-back").hidden = !answer.can_roll_back;
    $("promote").onclick = () => Alerts.sign("Use the second model", (who, note) => ask("/v1/models/promote", "POST", { digest: shadow.digest, who, note }));
    $("roll-back").onclick = () => Alerts.sign("Go back to the model before", (who, note) => ask("/v1/models/rollback", "POST", { who, note }));
  }
  /* The log has changed: another model may serve now. */
  function forget() {
    comparedAt = 0;
  }
  return { load, forget };
})();
