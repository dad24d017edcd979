// The log of alerts, of the fleet or of the machine that is open: who took care of what, and what is muted.
const Alerts = (function () {
  "use strict";
  const SHOWN = 20;
  const { NAMES, health, $, node } = Words;
  const { ask } = Link;
  let changes = 0; // of the log, as the service counts them
  let limit = SHOWN;
  let mute = null; // of the machine that is open

  function openUnit() {
    const match = /^#unit=(.+)$/.exec(location.hash);
    try {
      return match ? decodeURIComponent(match[1]) : null;
    } catch (error) {
      return null;
    }
  }
  function heard(count) {
    const news = count !== changes;
    if (news) load();
    changes = count;
    return news;
  }
  async function load() {
    const unit = openUnit();
    try {
      const query = `?limit=${limit}` + (unit === null ? "" : `&unit=${encodeURIComponent(unit)}`);
      const [answer, done] = await Promise.all([ask("/v1/alerts" + query), ask("/v1/maintenance" + query)]);
      if (unit === openUnit()) show(answer, done.events, unit);
    } catch (error) {
      $("alerts-text").textContent = "The alerts cannot be loaded: " + error.message;
    }
  }
  const time = (seconds) => new Date(1000 * seconds).toLocaleString();

  function show(answer, events, unit) {
    mute = unit === null ? null : answer.mutes.find((each) => each.machine === unit || unit.startsWith(each.machine + "#")) || null;
    const waiting = answer.sinks.filter((sink) => sink.waiting).map((sink) =>
      `${sink.waiting} wait for ${sink.name}` + (answer.problems[sink.name] ? `: ${answer.problems[sink.name]}` : ""));
    const refused = answer.sinks.filter((sink) => sink.refused).map((sink) => `${sink.refused} refused by ${sink.name}`);
    const muted = (unit === null ? answer.mutes : mute ? [mute] : []).map((each) =>
      `${each.machine} is muted until ${time(each.until)} by ${each.who}${each.note ? ": " + each.note : ""}`);
    $("alerts-text").textContent = [...muted, ...waiting, ...refused].join(" · ");
    const latest = new Map([...answer.alerts].reverse().map((alert) => [alert.machine, alert.id])); // stands for earlier ones
    const lines = [...answer.alerts.map((alert) => [alert.raised, item(alert, latest.get(alert.machine) === alert.id)]), ...events.map((event) => [event.recorded, doneItem(event)])];
    lines.sort((a, b) => b[0] - a[0]);
    $("alerts-list").replaceChildren(...lines.slice(0, limit).map(([, line]) => line));
    $("alerts-more").hidden = lines.length < limit;
    $("mute").hidden = unit === null;
    $("mute").textContent = mute ? "Unmute" : "Mute alerts…";
    $("alerts").hidden = unit === null && !lines.length && !muted.length;
  }
  function doneItem(event) {
    const line = node("li");
    const link = node("a", event.unit);
    link.href = "#unit=" + encodeURIComponent(event.unit);
    const words = [`by ${event.who}`, event.note, event.begins ? `begins ${event.begins}` : "", Math.abs(event.recorded - event.at) < 90 ? "" : `done ${time(event.at)}`];
    line.append(node("time", time(event.recorded), "note"), " ", link, " ", node("span", Maintenance.words(event), "status done"), " ", words.filter(Boolean).join(" · "));
    return line;
  }
  function item(alert, open) {
    const line = node("li");
    const link = node("a", alert.unit);
    link.href = "#unit=" + encodeURIComponent(alert.unit);
    const doubt = alert.health && alert.health.value !== null ? alert.health.reason : ""; // without a value it is said already
    const words = [alert.health ? health(alert.health) : "", alert.reason || doubt, `was ${NAMES[alert.before] || alert.before}`];
    if (alert.muted_by) words.push("not sent: muted by " + alert.muted_by);
    line.append(node("time", time(alert.raised), "note"), " ", link, " ",
      node("span", NAMES[alert.status] || alert.status, "status " + alert.status), " ", words.filter(Boolean).join(" · "));
    if (alert.acknowledged !== null) {
      line.append(node("span", ` Acknowledged by ${alert.acknowledged_by}, ${time(alert.acknowledged)}${alert.note ? ": " + alert.note : ""}`, "note"));
    } else if (open && alert.status !== "ok" && alert.status !== "ended") {
      const button = node("button", "Acknowledge", "quiet");
      button.type = "button";
      button.setAttribute("aria-label", `Acknowledge the alert about ${alert.unit}`);
      button.addEventListener("click", () => sign(`Acknowledge the alert about ${alert.unit}`, false, (who, note) =>
        ask(`/v1/alerts/${alert.id}/acknowledged`, "POST", { who, note })));
      line.append(" ", button);
    }
    return line;
  }

  // --- who it was ----------------------------------------------------------------------------
  let signed = null;
  function sign(title, timed, then) {
    signed = then;
    $("sign-title").textContent = title;
    $("sign-hours-line").hidden = !timed;
    $("sign-problem").textContent = $("sign-note").value = "";
    $("sign-who").value = $("sign-who").value || sessionStorage.getItem("who") || "";
    $("sign-dialog").showModal();
  }
  $("sign-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const who = $("sign-who").value.trim();
    event.submitter.disabled = true; // a second press would sign again
    try {
      await signed(who, $("sign-note").value.trim(), 3600 * Number($("sign-hours").value));
      sessionStorage.setItem("who", who);
      $("sign-dialog").close();
      load();
    } catch (error) {
      $("sign-problem").textContent = error.message;
    } finally {
      event.submitter.disabled = false;
    }
  });
  $("mute").addEventListener("click", async () => {
    const path = "/v1/mutes/" + encodeURIComponent(openUnit());
    if (mute) {
      await ask(path, "DELETE").catch(() => null);
      return load();
    }
    sign("Mute alerts about " + openUnit(), true, (who, note, seconds) => ask(path, "PUT", { who, note, for_in_s: seconds }));
  });
  $("alerts-more").addEventListener("click", () => {
    limit = Math.min(1000, limit + 100);
    load();
  });
  addEventListener("hashchange", () => {
    limit = SHOWN;
    load();
  });
  return { load, heard, sign: (title, then) => sign(title, false, then) };
})();
