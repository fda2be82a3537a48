// Opens the page of a report in the Chromium of JAXLM_BROWSER and prints what happened, as JSON.
// Needs puppeteer-core where NODE_PATH says: `npm install puppeteer-core`.
"use strict";

const puppeteer = require("puppeteer-core");

async function main(page) {
  const args = ["--no-sandbox", "--disable-gpu", "--single-process", "--no-zygote"];
  const browser = await puppeteer.launch({ executablePath: process.env.JAXLM_BROWSER, headless: "shell", args });
  const tab = await browser.newPage();
  const found = { messages: [], loaded: [] };
  tab.on("console", (message) => found.messages.push(message.text()));
  tab.on("pageerror", (error) => found.messages.push(error.message));
  tab.on("request", (request) => {
    if (!request.url().startsWith("data:")) found.loaded.push(request.url());
  });
  await tab.goto(`file://${page}`);
  const column = () => tab.$$eval("#sweep tbody tr", (rows) => rows.map((row) => row.cells[5].textContent));
  await tab.focus("#sweep th:nth-child(6) button");
  await tab.keyboard.press("Enter");
  found.up = await column();
  await tab.click("#sweep th:nth-child(6) button");
  found.down = await column();
  found.sorted = await tab.$eval("#sweep th:nth-child(6)", (heading) => heading.getAttribute("aria-sort"));
  await tab.click('#sweep a[href="#row-gpt2-12"]');
  await tab.waitForFunction(() => document.getElementById("row-gpt2-12").open, { timeout: 5000 });
  console.log(JSON.stringify(found));
  await browser.close();
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
