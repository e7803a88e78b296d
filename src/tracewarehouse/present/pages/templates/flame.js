// The flame views of a page; `report/flame.py` describes the data.
(() => {
  const ROW = 19, NARROWEST = 1.5, WITH_TEXT = 34;
  const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
  const digits = value => value >= 100 ? value.toFixed(0) : value.toPrecision(3);
  const time = ns => {
    const [size, unit] = UNITS.find(([size]) => ns >= size) || [1, 'ns'];
    return (size === 1 ? ns : digits(ns / size)) + ' ' + unit;
  };
  const make = (parent, kind, text) => {
    const made = document.createElement(kind);
    made.textContent = text;
    parent.append(made);
    return made;
  };

  function flame(figure) {
    const data = JSON.parse(figure.querySelector('script').textContent);
    const part = name => figure.querySelector(name), button = name => part(`[data-do=${name}]`);
    const area = part('.frames'), path = part('.path'), pinned = part('.pinned'), tip = document.getElementById('tip');
    const all = { at: -1, name: 'entire time', self: 0, total: 0, count: 1, inside: [], caller: null, category: -1 };
    const numbers = numbersOf(data.frames), frames = [];
    for (let at = 0; at < numbers.length; at += 5) {
      const [caller, category, name, count, self] = numbers.slice(at, at + 5);
      const frame = {
        at: frames.length, category, count, self, total: self, inside: [], isCombined: !name,
        name: name ? data.names[name - 1] : `${count} smaller frame${count > 1 ? 's' : ''}`, caller: frames[caller - 1] ?? all,
      };
      frames.push(frame);
      frame.caller.inside.push(frame);
    }
    const addUp = frame => frame.total = frame.inside.reduce((sum, each) => sum + addUp(each), frame.self);
    addUp(all);
    const sums = {};
    for (const frame of frames) {
      const key = data.categories[frame.category][0];
      sums[key] = (sums[key] || 0) + frame.self;
    }
    figure.dataset.sums = JSON.stringify(Object.fromEntries(Object.entries(sums).filter(([, ns]) => ns)));

    // At first the outermost frame that calls more than one.
    let home = all;
    while (home.inside.length && home.inside[0].total >= 0.98 * all.total) home = home.inside[0];
    let root = home, selected = home, boxes = new Map();
    const share = ns => { const value = 100 * ns / all.total; return value && value < 0.1 ? '< 0.1 %' : digits(value) + ' %'; };
    const describe = frame => {
      const parts = [frame.at < 0 || frame.isCombined ? frame.name : `${frame.name} (${data.categories[frame.category][2]})`];
      parts.push(`${time(frame.total)}, ${share(frame.total)}`);
      if (frame.at >= 0 && !frame.isCombined) parts.push(`self ${time(frame.self)}`, `${frame.count} time${frame.count > 1 ? 's' : ''}`);
      return parts.join(' · ');
    };
    const short = name => name.replace(/^<built-in method (\S+) of .*/, '$1').replace(/^(?:[^ ]*\/)?([^/ ]+)\(\d+\): /, '$1: ');

    function draw() {
      const width = area.clientWidth;
      if (!width || !root.total) return;
      boxes = new Map();
      area.replaceChildren();
      let deepest = 0;
      const put = (frame, x, row) => {
        const size = frame.total / root.total * width;
        if (size < NARROWEST) return;
        deepest = Math.max(deepest, row);
        const box = make(area, 'div', size < WITH_TEXT ? '' : short(frame.name));
        box.style.cssText = `left:${x}px;top:${row * ROW}px;width:${Math.max(size - 1, 1)}px;--of:var(--${frame.at < 0 ? 'line' : data.categories[frame.category][1]})`;
        box.frame = frame;
        boxes.set(frame, box);
        for (const each of frame.inside) { put(each, x, row + 1); x += each.total / root.total * width; }
      };
      put(root, 0, 0);
      area.style.height = (deepest + 1) * ROW + 'px';
      path.replaceChildren();
      const above = [];
      for (let each = root.caller; each; each = each.caller) above.unshift(each);
      const listed = above.length > 4 ? [above[0], null, ...above.slice(-2)] : above;
      for (const each of listed) {
        const name = each ? short(each.name) : '';
        const step = make(path, each ? 'button' : 'span', each ? (name.length > 40 ? name.slice(0, 39) + '…' : name) : `… ${above.length - 3} more …`);
        if (!each) continue;
        step.type = 'button';
        step.title = each.name;
        step.addEventListener('click', () => zoom(each));
      }
      path.hidden = !above.length;
      choose(boxes.has(selected) ? selected : root);
    }
    function choose(frame) {
      boxes.get(selected)?.classList.remove('selected');
      selected = frame;
      const box = boxes.get(frame);
      box?.classList.add('selected');
      if (document.activeElement === area) box?.scrollIntoView({ block: 'nearest' });
      pinned.textContent = describe(frame);
    }
    function zoom(frame) {
      if (frame.isCombined) frame = frame.caller;
      root = selected = frame;
      draw();
    }
    const beside = way => {
      const siblings = (selected === root ? [root] : selected.caller.inside).filter(each => boxes.has(each));
      return siblings[siblings.indexOf(selected) + way];
    };
    const move = frame => { if (frame && boxes.has(frame)) choose(frame); };
    const actions = {
      in: () => zoom(selected === root ? root.inside[0] ?? root : selected), out: () => { const was = root; zoom(root.caller ?? root); move(was); },
      home: () => zoom(home), all: () => zoom(all),
      left: () => move(beside(-1)), right: () => move(beside(1)), up: () => selected === root ? actions.out() : move(selected.caller), down: () => move(selected.inside[0]),
    };
    const keys = { '+': 'in', '=': 'in', Enter: 'in', '-': 'out', '−': 'out', Backspace: 'out', 0: 'home', a: 'all',
      ArrowLeft: 'left', ArrowRight: 'right', ArrowUp: 'up', ArrowDown: 'down' };
    for (const name of ['in', 'out', 'home', 'all']) button(name).addEventListener('click', actions[name]);
    area.addEventListener('keydown', event => {
      const name = keys[event.key];
      if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      actions[name]();
    });
    area.addEventListener('click', event => { if (event.target.frame) event.target.frame === root ? choose(root) : zoom(event.target.frame); });
    area.addEventListener('pointermove', event => {
      event.stopPropagation();
      tip.hidden = !event.target.frame;
      if (tip.hidden) return;
      tip.textContent = describe(event.target.frame);
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - width - 8)) + 'px';
      tip.style.top = (event.clientY - height - 12 > 4 ? event.clientY - height - 12 : event.clientY + 18) + 'px';
    });
    area.addEventListener('pointerleave', () => { tip.hidden = true; });
    for (const [key, color, name] of data.categories) {
      if (!sums[key]) continue;
      const item = make(part('.legend'), 'li', '');
      make(item, 'i', '').style.background = `color-mix(in srgb,var(--${color}) 35%,var(--paper))`;
      item.append(`${name} ${share(sums[key])}`);
    }
    figure.flame = { frames, all, zoom, root: () => root, selected: () => selected, box: frame => boxes.get(frame) };
    let drawnFor = 0;
    new ResizeObserver(() => { if (area.clientWidth !== drawnFor) { drawnFor = area.clientWidth; draw(); } }).observe(area);
  }
  document.querySelectorAll('figure.flame').forEach(flame);
})();
