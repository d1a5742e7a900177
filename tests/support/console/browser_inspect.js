// What a person would see on the page that is loaded, as plain values.
() => {
  const numbers = (text) => (text.match(/[\d.]+(?:e-?\d+)?/g) ?? []).map(Number);
  const colour = (text) => {
    const [r, g, b, alpha = 1] = numbers(text);
    const unit = text.startsWith("color(") ? 1 : 255;
    return { rgb: [r / unit, g / unit, b / unit], alpha };
  };
  const over = (upper, lower) =>
    upper.rgb.map((part, i) => part * upper.alpha + lower[i] * (1 - upper.alpha));
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const ground = colour(getComputedStyle(each).backgroundColor);
      if (ground.alpha > 0) layers.push(ground);
      if (ground.alpha === 1) break;
    }
    return layers.reverse().reduce((lower, upper) => over(upper, lower), [1, 1, 1]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) =>
      part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest("svg, .unseen")) continue;
    const ground = behind(element);
    const ratio = contrast(over(colour(getComputedStyle(element).color), ground), ground);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(1)} ${text.slice(0, 40)}`);
  }
  const unnamed = [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea")]
    .filter((each) => !(each.labels?.length || each.textContent.trim() || each.ariaLabel || each.value))
    .map((each) => each.outerHTML);
  return {
    text: document.body.textContent,
    title: document.title,
    headings: [...document.querySelectorAll("h1")].map((each) => each.textContent),
    links: [...document.links].map((each) => each.getAttribute("href")),
    posts: [...document.forms].filter((each) => each.method === "post")
      .map((each) => each.getAttribute("action")),
    drawn: [...document.querySelectorAll(".canary, [onerror], main script, main style, main [style]")]
      .map((each) => each.outerHTML),
    faint: [...new Set(faint)],
    unnamed,
  };
}
