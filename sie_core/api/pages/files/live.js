"use strict";
// Shows on `/` what the server sends of itself, and tries its models. Everything is written as text, never as HTML.
const live = (page, ask, token) => {
  const DRAWN_MS = 500, RECENT_S = 10, FIRST_WAIT_MS = 1000, LONGEST_WAIT_MS = 15000;
  const ORDER = ["failed", "loading", "unloading", "loaded"];
  const STAGES = ["tokenization", "queue", "inference", "postprocessing", "total"];
  const at = name => page.querySelector(`[data-at="${name}"]`);
  const put = (name, text) => { if (at(name).textContent !== text) at(name).textContent = text; };
  const round = number => number >= 100 ? number.toFixed(0) : number.toPrecision(2);
  const bytes = number => number >= 1e9 ? `${(number / 1e9).toFixed(1)} GB` : `${(number / 1e6).toFixed(0)} MB`;
  const ago = seconds => {
    const [size, unit] = [[86400, "days"], [3600, "h"], [60, "min"]].find(each => seconds >= 2 * each[0]) || [1, "s"];
    return `${Math.max(0, Math.floor(seconds / size))} ${unit} ago`;
  };

  /** Fills a table with rows of texts; rows that are there are used again, so that what is selected stays. */
  const fill = (table, rows) => {
    const body = table.tBodies[0];
    while (body.rows.length > rows.length) body.deleteRow(-1);
    rows.forEach((row, index) => {
      const line = body.rows[index] || body.insertRow();
      row.forEach((text, column) => {
        const cell = line.cells[column] || line.insertCell();
        if (cell.textContent !== text) cell.textContent = text;
      });
    });
    table.hidden = !rows.length;
  };

  const modelRow = (model, now) => {
    const said = model.last_error?.message || model.notes?.fetch || "";
    const memory = model.memory_bytes ? bytes(model.memory_bytes) : "";
    const queued = String(model.queue_depth ?? model.total_queue_depth ?? 0);
    const used = model.worker_count == null
      ? (model.last_used_at ? ago(now - model.last_used_at) : "never") : `${model.worker_count} workers`;
    return [model.name, model.state + (said && ["failed", "loading"].includes(model.state) ? `: ${said}` : ""),
      memory, queued, used];
  };

  const messages = [];
  const draw = told => {
    messages.push(told);
    while (messages.length > 2 && told.timestamp - messages[1].timestamp >= RECENT_S) messages.shift();
    const first = messages[0], traffic = told.traffic, seconds = told.timestamp - first.timestamp;
    const answered = traffic.answered - first.traffic.answered;
    put("rate", seconds > 0 ? `${round(answered / seconds)} / s` : "…");
    const spent = stage => traffic.stage_seconds[stage] - first.traffic.stage_seconds[stage];
    fill(at("stages"), answered > 0 ? STAGES.map(stage => [stage, `${round(1000 * spent(stage) / answered)} ms`]) : []);
    const memory = told.memory, workers = told.workers;
    put("memory", memory ? `${bytes(memory.used_bytes)} of ${bytes(memory.total_bytes)} (${memory.device})`
      : workers ? `${workers.filter(each => each.healthy).length} of ${workers.length} workers are healthy` : "not measured");
    at("meter").hidden = !memory;
    if (memory) at("meter").value = memory.used_bytes / memory.total_bytes;
    const shown = told.models.filter(model => model.state !== "available" || model.queue_depth);
    const rank = model => (ORDER.indexOf(model.state) + 1 || 9);
    shown.sort((one, other) => rank(one) - rank(other) || (other.memory_bytes || 0) - (one.memory_bytes || 0));
    put("queued", String(shown.reduce((sum, model) => sum + (model.queue_depth ?? model.total_queue_depth ?? 0), 0)));
    fill(at("models"), shown.map(model => modelRow(model, told.timestamp)));
    put("loaded", `${shown.filter(model => model.state === "loaded").length}`);
    const errors = Object.entries(traffic.errors).sort((one, other) => other[1].last_at - one[1].last_at);
    fill(at("errors"), errors.map(([code, each]) =>
      [code, String(each.count), ago(told.timestamp - each.last_at), each.request_id]));
  };

  let wait = FIRST_WAIT_MS, drawn = -Infinity;
  const connect = () => {
    if (!page.isConnected) return;
    const given = token() && btoa(token()).replace(/=+$/, "").replace(/\+/g, "-").replace(/\//g, "_");
    const socket = new WebSocket(location.origin.replace("http", "ws") + page.dataset.feed,
      ["sie.status", ...(given ? [`sie.bearer.${given}`] : [])]);
    socket.onmessage = message => {
      wait = FIRST_WAIT_MS;
      put("link", "Live.");
      page.classList.remove("stale");
      if (performance.now() - drawn < DRAWN_MS || document.hidden) return;
      drawn = performance.now();
      draw(JSON.parse(message.data));
    };
    socket.onclose = closed => {
      messages.length = 0;
      page.classList.add("stale");
      put("link", `${closed.reason || "The connection is lost"}; what is shown is old. Trying again …`);
      setTimeout(connect, wait);
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    };
  };

  const element = (name, text, ...children) => {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    made.append(...children);
    return made;
  };

  /** Shows how like each text is to each other one, by the cosine of their vectors. */
  const similarities = (texts, reply) => {
    const vectors = reply.items.map(item => item.dense?.values);
    if (!vectors.every(Array.isArray)) return element("p", "This model gives no dense vectors; /docs shows its reply.");
    const dot = (one, other) => one.reduce((sum, value, index) => sum + value * other[index], 0);
    const cosine = (one, other) => dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other));
    const rows = texts.map((text, row) => element("tr", "", element("th", text),
      ...vectors.map(other => element("td", cosine(vectors[row], other).toFixed(3)))));
    const head = element("tr", "", element("th", "Cosine"), ...texts.map((_, column) => element("th", `${column + 1}`)));
    return element("table", "", element("thead", "", head), element("tbody", "", ...rows));
  };

  const ranking = (texts, reply) => element("ol", "", ...reply.scores.map(each =>
    element("li", `${each.score.toFixed(4)}  ${texts[Number(each.item_id)] ?? each.item_id}`)));

  /** Marks what was found in each text; places are counted in characters, of which JavaScript has two for some. */
  const highlighted = (texts, reply) => element("div", "", ...reply.items.map((item, index) => {
    const letters = [...texts[index]], line = element("p");
    let end = 0;
    for (const entity of (item.entities || []).filter(each => each.start !== null).sort((one, other) => one.start - other.start)) {
      if (entity.start < end) continue;
      line.append(letters.slice(end, entity.start).join(""));
      line.append(element("mark", letters.slice(entity.start, entity.end).join("")), element("sub", entity.label));
      end = entity.end;
    }
    line.append(letters.slice(end).join(""));
    return line;
  }));

  const OPERATIONS = {
    encode: [texts => ({items: texts.map(text => ({text})), params: {output_types: ["dense"]}}), similarities],
    score: [(texts, more) => ({query: {text: more}, items: texts.map((text, index) => ({id: `${index}`, text}))}), ranking],
    extract: [(texts, more) => ({items: texts.map(text => ({text})),
      params: {labels: more.split(",").map(label => label.trim()).filter(Boolean)}}), highlighted],
  };

  const form = page.querySelector("form");
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const operation = form.elements.operation.value, [body, shown] = OPERATIONS[operation];
    const texts = form.elements.texts.value.split("\n").filter(line => line.trim());
    const path = encodeURIComponent(form.elements.model.value.trim()).replace(/%2F/g, "/").replace(/%3A/g, ":");
    const [output, button] = [form.querySelector("output"), form.querySelector("button")];
    button.disabled = true;
    output.textContent = "Waiting for the answer …";
    try {
      const reply = await ask(`/v1/${operation}/${path}`, {method: "POST",
        headers: {"Accept": "application/json", "Content-Type": "application/json", "Prefer": "wait=120"},
        body: JSON.stringify(body(texts, form.elements.more.value))});
      const told = await reply.json();
      output.replaceChildren(reply.ok ? shown(texts, told) : element("p", told.error?.message || told.detail?.message || `${reply.status}`));
    } catch (error) {
      output.textContent = `No answer: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  });
  connect();
};
