"""A JavaScript expression: contrast (WCAG 2) of every piece of text in a page against the ground it stands on."""

# of HTML the nearest opaque background; of SVG the filled shape under the text's middle, else the page's own
CONTRAST = r"""(() => {
  const rgba = c => { const n = c.match(/[\d.]+/g).map(Number); return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const ground = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor);
    if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  const dimmed = e => {
    const m = getComputedStyle(e).filter.match(/brightness\(([\d.]+)\)/); return m ? +m[1] : 1; };
  const under = t => { t.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const b = t.getBoundingClientRect();
    for (const e of document.elementsFromPoint(b.x + b.width / 2, b.y + b.height / 2)) {
      if (e === t || e.tagName === 'text' || e.tagName === 'tspan') continue;
      const fill = getComputedStyle(e).fill; if (e.ownerSVGElement && fill.startsWith('rgb')) {
        const c = rgba(fill); if (c[3] > 0) return c.map((v, i) => i < 3 ? v * dimmed(e) : v); }
      if (!e.ownerSVGElement && e.tagName !== 'svg') return ground(e); }
    return ground(t.ownerSVGElement); };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) { const n = walk.currentNode, e = n.parentElement;
    if (!n.textContent.trim() || ['title', 'desc', 'STYLE'].includes(e.tagName)) continue;
    const svg = e.ownerSVGElement, style = getComputedStyle(e);
    const on = svg ? under(e) : ground(e);
    found.push([ratio(rgba(svg ? style.fill : style.color), on), n.textContent.slice(0, 30), e.tagName]); }
  return found; })()"""
