(() => {
"use strict";
const GUTTER = 74, NARROW_GUTTER = 54, AXIS = 22, HEAD = 20, PAD = 7, LEAST_SPAN = 50;
const COLOURS = ["a", "b", "c", "d", "e", "f", "g", "h"];

function time(tenths) {
  const ns = tenths / 10;
  for (const [scale, unit] of [[1e6, "ms"], [1e3, "us"]]) {
    if (Math.abs(ns) >= scale) return (ns / scale).toPrecision(4) + " " + unit;
  }
  return (Number.isInteger(ns) ? ns : ns.toFixed(1)) + " ns";
}

function moment(tenths) {
  return tenths < 1e4 ? time(tenths) : (tenths / 1e4).toLocaleString("en", {minimumFractionDigits: 3, maximumFractionDigits: 3}) + " us";
}

function whole(number) {
  return number.toLocaleString("en");
}

function size(bytes) {
  for (const [scale, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"]]) {
    if (bytes >= scale) return (bytes / scale).toFixed(1) + " " + unit;
  }
  return bytes + " B";
}

function start(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const n = data.slices;
  const column = (name, otherwise) => {
    const found = name in data.columns ? data.columns[name].split(" ").map(Number) : [otherwise];
    return found.length === n ? found : new Array(n).fill(found[0]);
  };
  const [lane, row, begin, length, name, place, operands, wait, blocker, bytes, latency] = ["lane", "row", "start",
    "length", "name", "place", "operands", "wait", "blocker", "bytes", "latency"].map((each) => column(each, 0));
  const count = column("count", 1), busy = column("busy", -1);
  for (let at = 1; at < n; at++) begin[at] += begin[at - 1];

  const stage = figure.querySelector(".stage"), canvas = stage.querySelector("canvas"), pen = canvas.getContext("2d");
  const tip = stage.querySelector(".tip"), pinnedText = figure.querySelector(".pinned");
  const find = figure.querySelector("input"), found = figure.querySelector("output");
  const colouring = figure.querySelector("select"), legend = figure.querySelector(".legend");
  const rows = [], heads = [];
  let height = AXIS;
  data.lanes.forEach((each, at) => {
    if (each.core !== null && (at === 0 || data.lanes[at - 1].core !== each.core)) {
      heads.push([height, "core " + each.core]);
      height += HEAD;
    }
    const one = each.rows === 1 ? 20 : Math.max(3, Math.min(12, 96 / each.rows));
    each.top = height;
    each.first = rows.length;
    for (let below = 0; below < each.rows; below++) {
      rows.push({lane: at, top: height + below * one, height: one, slices: []});
    }
    each.height = one * each.rows;
    height += each.height + PAD;
  });
  const rowOf = (at) => rows[data.lanes[lane[at]].first + row[at]];
  for (let at = 0; at < n; at++) rowOf(at).slices.push(at);
  canvas.style.height = height + "px";

  const end = Math.max(data.end, 1);
  let from = 0, to = end, width = 0, gutter = GUTTER, hovered = -1, pinned = -1, cursor = -1, queued = false;
  let colour = {}, shade = new Uint8Array(n), matching = null, matches = [];

  const label = (at) => name[at] < 0 ? "(no instruction)" : data.names[name[at]];
  const line = (at) => place[at] < 0 ? "" : data.places[place[at]];
  const laneName = (at) => data.lanes[lane[at]].name + (data.lanes[lane[at]].core === null ? "" : " of core " + data.lanes[lane[at]].core);
  const moved = (at) => size(bytes[at]) + (data.lanes[lane[at]].name === "dma" ? " moved" : " read and written on chip");
  const x = (t) => gutter + (t - from) / (to - from) * (width - gutter);
  const t = (px) => from + (px - gutter) / Math.max(width - gutter, 1) * (to - from);

  function recolour() {
    const by = {name, place, wait}[colouring.value], texts = {name: data.names, place: data.places, wait: data.waits}[colouring.value];
    const held = new Map();
    for (let at = 0; at < n; at++) held.set(by[at], (held.get(by[at]) || 0) + (busy[at] < 0 ? length[at] : busy[at]));
    const order = [...held.keys()].sort((a, b) => held.get(b) - held.get(a));
    const index = new Map(order.map((key, at) => [key, Math.min(at, COLOURS.length)]));
    for (let at = 0; at < n; at++) shade[at] = index.get(by[at]);
    legend.replaceChildren();
    const entry = (kind, text, spent) => {
      const item = document.createElement("li"), swatch = document.createElement("span"), dim = document.createElement("span");
      swatch.className = "swatch m" + kind;
      dim.className = "dim";
      dim.textContent = " " + time(Math.round(spent));
      item.append(swatch, text || "(none)", dim);
      legend.append(item);
    };
    order.slice(0, COLOURS.length).forEach((key, at) => entry(at, texts[key], held.get(key)));
    const rest = order.slice(COLOURS.length);
    if (rest.length) entry("r", rest.length + " others", rest.reduce((sum, key) => sum + held.get(key), 0));
    redraw();
  }

  function readColours() {
    const style = getComputedStyle(figure), of = (key) => style.getPropertyValue("--" + key).trim();
    colour = {maps: [...COLOURS, "r"].map((each) => of("map-" + each))};
    for (const key of ["ink", "dim", "line", "track", "panel", "accent", "bad"]) colour[key] = of(key);
    colour.font = "12px " + style.fontFamily;
    colour.small = "10px " + style.fontFamily;
    redraw();
  }

  function redraw() {
    if (!queued) {
      queued = true;
      requestAnimationFrame(() => { queued = false; paint(); });
    }
  }

  function lower(slices, when) {
    let low = 0, high = slices.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (begin[slices[middle]] + length[slices[middle]] < when) low = middle + 1; else high = middle;
    }
    return low;
  }

  function paint() {
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = colour.font;
    pen.textBaseline = "middle";
    ticks();
    for (const each of data.lanes) {
      pen.fillStyle = colour.track;
      pen.fillRect(gutter, each.top, width - gutter, each.height);
    }
    pen.save();
    pen.beginPath();
    pen.rect(gutter, 0, width - gutter, height);
    pen.clip();
    for (const each of rows) slicesOf(each);
    if (pinned >= 0) arrow(pinned);
    for (const [at, stroke] of [[hovered, 1.5], [pinned, 2.5]]) {
      if (at >= 0) outline(at, stroke);
    }
    if (cursor >= gutter) {
      pen.fillStyle = colour.dim;
      pen.fillRect(cursor, AXIS, 1, height - AXIS);
    }
    pen.restore();
    pen.font = colour.font;
    pen.fillStyle = colour.ink;
    for (const each of data.lanes) pen.fillText(each.name, 0, each.top + Math.min(each.height / 2, 10), gutter - 6);
    pen.fillStyle = colour.dim;
    for (const [top, text] of heads) pen.fillText(text, 0, top + HEAD / 2 + 2);
  }

  function ticks() {
    const room = Math.max(2, Math.floor((width - gutter) / 90)), rough = (to - from) / room;
    const power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    const unit = to >= 1e7 ? [1e7, "ms"] : to >= 1e4 ? [1e4, "us"] : [10, "ns"];
    const digits = Math.min(6, Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9)));
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const px = x(at), text = at === 0 ? "0" : (at / unit[0]).toFixed(digits) + " " + unit[1];
      pen.fillStyle = colour.line;
      pen.fillRect(px, AXIS - 5, 1, height - AXIS + 5);
      pen.fillStyle = colour.dim;
      if (px + pen.measureText(text).width + 4 < width) pen.fillText(text, px + 3, 9);
    }
  }

  function slicesOf(each) {
    const slices = each.slices, tall = each.height - (each.height > 6 ? 1 : 0.5);
    for (let k = lower(slices, from); k < slices.length; k++) {
      const at = slices[k];
      if (begin[at] > to) break;
      const left = Math.max(x(begin[at]), gutter - 2), right = Math.min(x(begin[at] + length[at]), width + 2);
      const wide = right - left;
      const full = busy[at] < 0 ? 1 : Math.max(0.3, Math.min(1, busy[at] / Math.max(length[at], 1)));
      pen.fillStyle = colour.maps[shade[at]];
      pen.globalAlpha = matching && !matching[at] ? 0.13 : full;
      pen.fillRect(left, each.top, Math.max(wide > 6 ? wide - 0.8 : wide, 0.4), tall);
      if (wide > 34 && each.height >= 11 && !(matching && !matching[at])) {
        const text = count[at] > 1 ? whole(count[at]) + " x " + label(at) : label(at);
        pen.font = each.height < 14 ? colour.small : colour.font;
        if (pen.measureText(text).width < wide - 8) {
          pen.globalAlpha = 1;
          pen.fillStyle = full > 0.6 ? colour.panel : colour.ink;
          pen.fillText(text, left + 4, each.top + tall / 2 + 0.5);
        }
      }
    }
    pen.globalAlpha = 1;
  }

  function outline(at, stroke) {
    const own = rowOf(at), left = x(begin[at]), wide = Math.max(x(begin[at] + length[at]) - left, 2);
    pen.strokeStyle = colour.ink;
    pen.lineWidth = stroke;
    pen.strokeRect(left, own.top, wide, Math.max(own.height - 1, 2));
  }

  function arrow(at) {
    const other = blocker[at];
    if (other < 0 || count[at] > 1) return;
    const a = rowOf(other), b = rowOf(at);
    const x1 = x(begin[other] + length[other]), y1 = a.top + a.height / 2, x2 = x(begin[at]), y2 = b.top + b.height / 2;
    const bend = Math.max(12, Math.abs(x2 - x1) / 2);
    pen.strokeStyle = pen.fillStyle = colour.bad;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2 - 5, y2);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x2, y2);
    pen.lineTo(x2 - 7, y2 - 4);
    pen.lineTo(x2 - 7, y2 + 4);
    pen.fill();
    outline(other, 1.5);
  }

  function described(at) {
    const lines = [["strong", label(at) + (line(at) ? " " + line(at) : "")]];
    if (count[at] > 1) {
      lines.push(["span", whole(count[at]) + " slices on " + laneName(at) + ", merged; from " + moment(begin[at]) + " to "
        + moment(begin[at] + length[at]) + ", busy " + time(busy[at])]);
      if (bytes[at]) lines.push(["span", moved(at)]);
      return lines;
    }
    if (operands[at] >= 0) lines.push(["code", data.operands[operands[at]]]);
    lines.push(["span", laneName(at) + ", start " + moment(begin[at]) + ", duration " + time(length[at])
      + (latency[at] ? ", result " + time(latency[at]) + " later" : "")]);
    const why = data.waits[wait[at]], other = blocker[at];
    if (other >= 0) {
      lines.push(["span", "waited for " + why + ": " + label(other) + (line(other) ? " " + line(other) : "") + " on " + laneName(other)
        + (count[other] > 1 ? ", one of " + whole(count[other]) + " merged" : ", done at " + moment(begin[other] + length[other]))]);
    } else if (wait[at] > 0) {
      lines.push(["span", "waited for " + why]);
    } else {
      lines.push(["span", "waited for nothing"]);
    }
    if (bytes[at]) lines.push(["span", moved(at)]);
    return lines;
  }

  function fill(box, at) {
    box.replaceChildren(...described(at).map(([kind, text]) => {
      const element = document.createElement("div"), inner = document.createElement(kind);
      inner.textContent = text;
      element.append(inner);
      return element;
    }));
  }

  function hit(px, py) {
    if (px < gutter) return -1;
    const each = rows.find((one) => py >= one.top && py < one.top + one.height + (one.height >= 11 ? 3 : 0));
    if (!each) return -1;
    const when = t(px), near = 3 * (to - from) / Math.max(width - gutter, 1);
    let best = -1, distance = near;
    for (let k = lower(each.slices, when - near); k < each.slices.length; k++) {
      const at = each.slices[k];
      if (begin[at] > when + near) break;
      const apart = Math.max(begin[at] - when, when - begin[at] - length[at], 0);
      if (best < 0 ? apart <= distance : apart < distance) [best, distance] = [at, apart];
    }
    return best;
  }

  function point(px, py) {
    const at = hit(px, py);
    cursor = px;
    if (at !== hovered) {
      hovered = at;
      if (at >= 0) fill(tip, at);
    }
    tip.hidden = at < 0;
    if (at >= 0) {
      const left = px + 14 + tip.offsetWidth > width ? Math.max(0, px - 14 - tip.offsetWidth) : px + 14;
      tip.style.left = Math.max(0, Math.min(left, width - tip.offsetWidth)) + "px";
      tip.style.top = py + 18 + "px";
    }
    canvas.style.cursor = at >= 0 ? "pointer" : "grab";
    redraw();
  }

  function leave() {
    hovered = cursor = -1;
    tip.hidden = true;
    redraw();
  }

  function pin(at) {
    pinned = at;
    pinnedText.hidden = at < 0;
    if (at >= 0) fill(pinnedText, at);
    redraw();
  }

  function show(at) {
    pin(at);
    if (at < 0) return;
    const span = to - from;
    if (length[at] > span) look(begin[at] - length[at] * 0.1, begin[at] + length[at] * 1.1);
    else if (begin[at] < from || begin[at] + length[at] > to) look(begin[at] - span / 3, begin[at] + span * 2 / 3);
  }

  function look(low, high) {
    const span = Math.min(end, Math.max(LEAST_SPAN, high - low));
    from = Math.max(0, Math.min(end - span, low + (high - low - span) / 2));
    to = from + span;
    redraw();
  }

  function zoom(factor, centre) {
    const span = Math.min(end, Math.max(LEAST_SPAN, (to - from) * factor)), share = (centre - from) / (to - from);
    look(centre - span * share, centre + span * (1 - share));
  }

  const pan = (share) => look(from + (to - from) * share, to + (to - from) * share);

  function next(step) {
    if (pinned < 0) return show(matches.length ? matches[0] : n ? 0 : -1);
    const slices = matches.length ? matches : rowOf(pinned).slices, at = slices.indexOf(pinned);
    show(slices[(at + step + slices.length) % slices.length]);
  }

  function search() {
    const wanted = find.value.trim().toLowerCase();
    matching = null;
    matches = [];
    found.textContent = "";
    if (wanted) {
      const number = /^\d+$/.test(wanted) ? ":" + wanted : null;
      const fits = (text) => number ? text.endsWith(number) : text.toLowerCase().includes(wanted);
      const lines = data.places.map(fits), named = data.names.map((each) => !number && each.toLowerCase().includes(wanted));
      matching = new Uint8Array(n);
      let slices = 0, held = 0;
      for (let at = 0; at < n; at++) {
        if ((place[at] >= 0 && lines[place[at]]) || (name[at] >= 0 && named[name[at]])) {
          matching[at] = 1;
          matches.push(at);
          slices += count[at];
          held += busy[at] < 0 ? length[at] : busy[at];
        }
      }
      matches.sort((a, b) => begin[a] - begin[b]);
      found.textContent = slices ? whole(slices) + " slices, " + time(Math.round(held)) : "no such line or instruction";
    }
    redraw();
  }

  const pointers = new Map();
  let dragged = false, apart = 0;
  const place2d = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, place2d(event));
    canvas.setPointerCapture(event.pointerId);
    dragged = pointers.size > 1;
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      apart = Math.abs(a[0] - b[0]);
    }
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place2d(event), before = pointers.get(event.pointerId);
    if (!before) return point(...now);
    pointers.set(event.pointerId, now);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()], wide = Math.abs(a[0] - b[0]);
      if (apart > 8 && wide > 8) zoom(apart / wide, t((a[0] + b[0]) / 2));
      apart = wide;
    } else if (dragged || Math.abs(now[0] - before[0]) > 3) {
      if (!dragged) leave();
      dragged = true;
      const by = (before[0] - now[0]) / Math.max(width - gutter, 1) * (to - from);
      look(from + by, to + by);
    } else {
      pointers.set(event.pointerId, before);
    }
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(kind, (event) => {
      const was = pointers.delete(event.pointerId);
      if (was && !dragged && kind === "pointerup") pin(hit(...place2d(event)));
    });
  }
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) * unit / 1000);
    else zoom(Math.exp(event.deltaY * unit / (event.ctrlKey ? 150 : 500)), t(Math.max(gutter, place2d(event)[0])));
  }, {passive: false});

  const middle = () => pinned >= 0 && begin[pinned] >= from && begin[pinned] <= to ? begin[pinned] : (from + to) / 2;
  const deeds = {
    in: () => zoom(0.5, middle()), out: () => zoom(2, middle()), all: () => look(0, end), left: () => pan(-0.2), right: () => pan(0.2),
    next: () => next(1), before: () => next(-1), blocker: () => { if (pinned >= 0 && blocker[pinned] >= 0) show(blocker[pinned]); },
    none: () => { pin(-1); leave(); },
  };
  const keys = {"+": "in", "=": "in", "-": "out", "_": "out", "0": "all", ArrowLeft: "left", ArrowRight: "right", n: "next", p: "before", b: "blocker", Escape: "none"};
  canvas.addEventListener("keydown", (event) => {
    const deed = keys[event.key];
    if (!deed || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    deeds[deed]();
  });
  for (const button of figure.querySelectorAll("button")) button.addEventListener("click", () => deeds[button.dataset.do]());
  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (matches.length) { if (!matching[pinned]) pinned = -1; next(event.shiftKey ? -1 : 1); }
  });
  colouring.addEventListener("change", recolour);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);
  figure.classList.add("ready");
  const measure = () => {
    width = stage.clientWidth;
    gutter = width < 520 ? NARROW_GUTTER : GUTTER;
    redraw();
  };
  new ResizeObserver(measure).observe(stage);
  measure();
  readColours();
  recolour();
  figure.timeline = {look, pin, show, point, state: () => ({from, to, end, pinned, hovered, matches: matches.length, width})};
}

for (const figure of document.querySelectorAll("figure.timeline")) start(figure);
})();
