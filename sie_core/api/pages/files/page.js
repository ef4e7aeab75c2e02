"use strict";
// Sends the examples of /docs, and opens a page that wants a token. It talks to the server it came from alone.
(() => {
  const KEPT = "sie-token";
  const SHOWN = 8; // numbers of a longer list
  const HEADERS = /^(x-|retry-after$|content-type$|www-authenticate$)/;

  const token = () => sessionStorage.getItem(KEPT) || "";
  const keep = value => value ? sessionStorage.setItem(KEPT, value) : sessionStorage.removeItem(KEPT);
  const ask = (path, options = {}) => {
    const headers = {...options.headers};
    if (token()) headers.Authorization = `Bearer ${token()}`;
    return fetch(path, {...options, headers, cache: "no-store"});
  };

  /** Writes JSON with each list of numbers on one line, and the first of them only. */
  const written = (value, indent = "") => {
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    const list = Array.isArray(value);
    if (list && value.length && value.every(each => typeof each === "number")) {
      const more = value.length - SHOWN;
      return `[${value.slice(0, SHOWN).join(", ")}${more > 0 ? `, … ${more} more` : ""}]`;
    }
    const deeper = indent + "  ";
    const rows = list
      ? value.map(each => written(each, deeper))
      : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${written(each, deeper)}`);
    const [open, close] = list ? "[]" : "{}";
    return rows.length ? `${open}\n${rows.map(row => deeper + row).join(",\n")}\n${indent}${close}` : open + close;
  };
  const readable = text => {
    try {
      return written(JSON.parse(text));
    } catch {
      return text;
    }
  };

  const pathOf = form => form.dataset.path.replace(
    "{model}", () => encodeURIComponent(form.elements.model.value.trim()).replace(/%2F/g, "/").replace(/%3A/g, ":"));

  const renamed = form => {
    form.querySelector(".address").textContent = pathOf(form);
    const body = form.elements.body;
    if (!body || form.dataset.path.includes("{model}")) return;
    try {
      body.value = JSON.stringify({...JSON.parse(body.value), model: form.elements.model.value.trim()}, null, 2);
    } catch {
      // The reader is in the middle of a change; the server will say what is wrong with it.
    }
  };

  const send = async form => {
    const [answer, outcome] = [".answer", ".outcome"].map(name => form.querySelector(name));
    const button = form.querySelector("button");
    const options = {method: form.dataset.method, headers: {Accept: "application/json, */*", Prefer: "wait=120"}};
    if (form.elements.body) {
      options.headers["Content-Type"] = "application/json";
      options.body = form.elements.body.value;
    }
    button.disabled = true;
    answer.hidden = false;
    outcome.className = "outcome";
    outcome.textContent = "Waiting for the answer …";
    const began = performance.now();
    try {
      const reply = await ask(pathOf(form), options);
      const text = await reply.text();
      const told = [...reply.headers].filter(([name]) => HEADERS.test(name));
      outcome.textContent = `${reply.status} ${reply.statusText} in ${Math.round(performance.now() - began)} ms`;
      outcome.classList.add(reply.ok ? "good" : "bad");
      form.querySelector(".heads").textContent = told.map(([name, value]) => `${name}: ${value}`).join("\n");
      form.querySelector(".reply").textContent = readable(text);
    } catch (error) {
      outcome.textContent = `No answer: ${error.message}`;
      outcome.classList.add("bad");
    } finally {
      button.disabled = false;
    }
  };

  /** Shows this address as it is with the token: its page, or what it answers to programs. */
  const unlock = async form => {
    const failed = why => {
      keep("");
      form.querySelector("output").textContent = why;
    };
    let reply, text;
    try {
      reply = await ask(location.href, {headers: {Accept: "text/html, */*"}});
      text = await reply.text();
    } catch (error) {
      return failed(`No answer: ${error.message}`);
    }
    if (reply.status === 401) return failed("This token is not one that may call here.");
    const isPage = (reply.headers.get("content-type") || "").startsWith("text/html");
    const page = new DOMParser().parseFromString(isPage ? text : "<main><pre></pre></main>", "text/html");
    if (!isPage) page.querySelector("pre").textContent = readable(text);
    document.title = page.title || location.pathname;
    document.body.replaceWith(page.body);
    start();
  };

  const start = () => {
    document.documentElement.classList.add("live");
    for (const form of document.querySelectorAll(".try")) {
      form.addEventListener("submit", event => { event.preventDefault(); send(form); });
      form.elements.model?.addEventListener("input", () => renamed(form));
    }
    const shown = document.querySelector("#live");
    if (shown) live(shown, ask, token);
    const field = document.querySelector("#token");
    if (!field) return;
    field.value = token();
    const asking = document.querySelector("#unlock");
    field.form.addEventListener("submit", event => {
      event.preventDefault();
      keep(field.value.trim());
      if (asking) unlock(asking);
    });
    if (!asking) field.addEventListener("input", () => keep(field.value.trim()));
    else if (token()) unlock(asking);
  };

  start();
})();
