// What was done to a machine: the dialog that records it. The log is shown with the alerts.
const Maintenance = (function () {
  "use strict";
  const KINDS = { failure: "failure", repair: "repair", replacement: "replacement", "sensor-exchange": "sensor exchanged", inspection: "inspection", acknowledgement: "flags acknowledged" };
  const { $ } = Words;
  const { ask } = Link;
  let unit = null;

  const words = (event) => KINDS[event.kind] + (event.sensor ? ": " + event.sensor : "");
  // The time of day here, as the field takes it.
  function localNow() {
    const now = new Date();
    return new Date(now - 60000 * now.getTimezoneOffset()).toISOString().slice(0, 16);
  }
  function chooseKind() {
    const kind = $("done-kind").value;
    $("done-sensor-line").hidden = kind !== "sensor-exchange";
    $("done-meaning").textContent = {
      failure: "The machine failed here. A new life begins with the next row. Models are compared by failures.",
      repair: "A new life begins with the next row. What was seen until now stays as history.",
      replacement: "A new life begins with the next row. What was seen until now stays as history.",
      "sensor-exchange": "The flags of this sensor end, and its level begins anew.",
      inspection: "It is recorded and changes nothing.",
      acknowledgement: "Flags that latched are dropped. What lasts is flagged again.",
    }[kind];
  }
  function open(name, kind = "repair") {
    unit = name;
    $("done-title").textContent = "Maintenance of " + name;
    $("done-kind").value = kind;
    $("done-at").value = $("done-at").max = localNow();
    $("done-problem").textContent = $("done-note").value = "";
    $("done-who").value = $("done-who").value || sessionStorage.getItem("who") || "";
    chooseKind();
    $("done-dialog").showModal();
  }
  $("done-kind").addEventListener("change", chooseKind);
  // Plain buttons: the first button that submits is the one that Enter presses.
  for (const button of document.querySelectorAll("dialog .cancel")) button.addEventListener("click", () => button.closest("dialog").close());
  $("done-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const kind = $("done-kind").value;
    const report = { unit, kind, at: new Date($("done-at").value).toISOString(), who: $("done-who").value.trim(), note: $("done-note").value.trim() };
    if (kind === "sensor-exchange") report.sensor = $("done-sensor").value;
    event.submitter.disabled = true; // a second press would record again
    try {
      const { results: [result] } = await ask("/v1/maintenance", "POST", report);
      sessionStorage.setItem("who", report.who);
      $("done-dialog").close();
      if (result.event.begins) location.hash = "#unit=" + encodeURIComponent(result.event.begins);
    } catch (error) {
      $("done-problem").textContent = error.message;
    } finally {
      event.submitter.disabled = false;
    }
  });
  function setSensors(names) {
    if ($("done-sensor").options.length !== names.length) $("done-sensor").replaceChildren(...names.map((name) => new Option(name.replaceAll("_", " "), name)));
  }
  return { open, words, setSensors };
})();
