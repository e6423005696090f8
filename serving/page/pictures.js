"use strict";
// Pictures of a speech: values of 0 to 255 in rows, drawn with axes.

function draw() {
  if (!record?.about || !at("details").open) return;
  const about = record.about;
  picture(at("mel"), about.mel, "frequency bands", 160);
  picture(at("alignment"), about.alignment, "symbols", 200);
}

function picture(canvas, { rows, columns, values }, label, height) {
  const style = getComputedStyle(document.body);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const scale = devicePixelRatio || 1;
  const [width, left, below] = [canvas.clientWidth, 44, 34];
  [canvas.width, canvas.height, canvas.style.height] = [width * scale, (height + below) * scale, `${height + below}px`];
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const image = new ImageData(columns, rows);
  const bytes = atob(values);
  const [from, to] = isDark ? [[19, 21, 24], [255, 224, 138]] : [[255, 255, 255], [20, 60, 110]];
  for (let i = 0; i < rows * columns; i++) {
    const place = 4 * ((rows - 1 - Math.floor(i / columns)) * columns + (i % columns)); // the first row is at the bottom
    const value = bytes.charCodeAt(i) / 255;
    for (let c = 0; c < 3; c++) image.data[place + c] = from[c] + value * (to[c] - from[c]);
    image.data[place + 3] = 255;
  }
  const whole = new OffscreenCanvas(columns, rows);
  whole.getContext("2d").putImageData(image, 0, 0);
  pen.drawImage(whole, left, 0, width - left - 8, height);
  pen.fillStyle = pen.strokeStyle = style.color;
  pen.strokeRect(left, 0.5, width - left - 8, height - 1);
  pen.font = "12px system-ui, sans-serif";
  axes(pen, width - left - 8, left, height, label);
}

function axes(pen, width, left, height, label) {
  const total = record.about.seconds;
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].find((one) => (one / total) * width > 45) ?? 200;
  pen.textAlign = "center";
  for (let i = 0; i * step <= total; i++) {
    const x = left + ((i * step) / total) * width;
    pen.fillRect(x, height, 1, 4);
    pen.fillText(Number((i * step).toFixed(1)), x, height + 15);
  }
  pen.fillText("seconds", left + width / 2, height + 30);
  pen.translate(28, height / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(label, 0, 0);
}
