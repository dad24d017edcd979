// Talking to the service: questions, the token, and the stream of events.
const Link = (function () {
  "use strict";
  const { $ } = Words;

  function authorised() {
    const token = sessionStorage.getItem("token");
    return token ? { Authorization: "Bearer " + token } : {};
  }
  async function ask(path, method = "GET", body = undefined, read = (answer) => answer.json()) {
    const headers = body === undefined ? authorised() : { ...authorised(), "Content-Type": "application/json" };
    const answer = await fetch(path, { method, headers, cache: "no-store", body: body && JSON.stringify(body) });
    if (answer.status === 401) {
      login();
      throw new Error("a token is needed");
    }
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      const refused = (problem.results || []).map((result) => result.reason).find(Boolean); // of one event or row
      throw Object.assign(new Error(problem.detail || refused || answer.statusText), { status: answer.status });
    }
    return answer.status === 204 ? null : read(answer);
  }
  function login() {
    if ($("login").open) return;
    if (sessionStorage.getItem("token")) $("login-text").textContent = "That token was not accepted. Try another.";
    $("login").showModal();
  }
  function onLogin(then) {
    $("login-form").addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem("token", $("token").value.trim());
      $("token").value = "";
      $("login").close();
      then();
    });
  }

  function connection(state, text) {
    $("connection").className = "pill " + state;
    if ($("connection").textContent !== text) $("connection").textContent = text;
  }

  // The service beats every 5 s. Three beats that do not come, or a batch that takes that long, mean that it hangs.
  const PATIENCE_IN_MS = 15000;
  let heard = 0;
  let lively = false;
  function beat(stalledInS) {
    heard = Date.now();
    if (stalledInS * 1000 > PATIENCE_IN_MS) connection("lost", `the service hangs: no rows are taken for ${Math.round(stalledInS)} s`);
    else connection("live", "live");
  }
  setInterval(() => {
    if (lively && Date.now() - heard > PATIENCE_IN_MS) connection("lost", `no sign of life for ${Math.round((Date.now() - heard) / 1000)} s`);
  }, 1000);

  // Events are read with fetch rather than EventSource, which cannot show a token.
  let following = 0;
  let stream = null;
  // A browser holds six connections to a service, and each stream is one: a page that nobody sees gives its own up.
  function pause() {
    following++;
    lively = false;
    if (stream) stream.abort();
  }
  async function follow(receive, reconnected) {
    pause();
    const mine = following;
    stream = new AbortController();
    const signal = stream.signal;
    let wait = 1000;
    while (mine === following) {
      try {
        const answer = await fetch("/v1/events", { headers: authorised(), cache: "no-store", signal });
        if (answer.status === 401) return login();
        if (!answer.ok) throw new Error(answer.statusText);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        lively = true;
        beat(0);
        if (wait > 1000) await reconnected();
        wait = 1000;
        let text = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done || mine !== following) break;
          text += value;
          const parts = text.split("\n\n");
          text = parts.pop();
          for (const part of parts) {
            const event = /^event: (.*)$/m.exec(part);
            const data = /^data: (.*)$/m.exec(part);
            if (event && data) receive(event[1], JSON.parse(data[1]));
          }
        }
      } catch (error) {
        // fall through: try again
      }
      if (mine !== following) return;
      lively = false;
      connection("lost", "not connected, trying again");
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, 15000);
    }
  }
  return { ask, onLogin, follow, pause, connection, beat };
})();
