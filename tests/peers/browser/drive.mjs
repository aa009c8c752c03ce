// Uses the console of a running pipeline as a person would, in a headless Chromium, and says what came of it.
//
//   node drive.mjs PLAYWRIGHT ORIGIN MODULE STEP [PICTURES]
//
// MODULE is tried beside the running module of STEP, promoted and rolled back; then dead letters are looked at and one is
// replayed. With PICTURES, a folder, it takes screenshots. It ends with 1 at the first thing that is not as it should be.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';

const [playwright, origin, module, step, pictures] = process.argv.slice(2);
const { chromium } = createRequire(path.join(playwright, 'package.json'))('playwright-core');
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: 'light' });
const trouble = [];
const asked = new Set();
page.on('pageerror', (error) => trouble.push(String(error)));
page.on('console', (message) => message.type() === 'error' && trouble.push(message.text()));
page.on('request', (request) => asked.add(new URL(request.url()).origin));
page.setDefaultTimeout(60_000);

const did = (what) => console.log(`ok ${what}`);
const text = (selector) => page.locator(selector).first().textContent();
const until = async (what, done) => {
  for (const began = Date.now(); !await done();) {
    assert.ok(Date.now() - began < 60_000, `never happened: ${what}`);
    await page.waitForTimeout(100);
  }
};
const picture = async (name, options = {}) => {
  if (pictures) await page.screenshot({ path: path.join(pictures, `${name}.png`), ...options });
};

try {
  await page.goto(origin);
  if (process.env.WEIR_TOKEN) {
    const field = page.locator('#dialog-input');
    await field.fill('not-the-right-token');
    await page.keyboard.press('Enter');
    await until('the question to come again', async () => await field.isVisible() && await field.inputValue() === '');
    await field.fill(process.env.WEIR_TOKEN);
    await page.keyboard.press('Enter');
    await until('the answer to be taken', async () => await text('#phase') === 'running');
    trouble.length = 0; // the browser tells of each 401
    did('the token is asked for');
  }
  const rate = () => text('.node.source .rate');
  await until('a rate above zero', async () => parseFloat(await rate()) > 0);
  const before = await rate();
  await until('the rate to move', async () => await rate() !== before);
  did('rates move');
  assert.equal(await text('#phase'), 'running');
  assert.ok(await page.locator('#plot-rate canvas').isVisible());
  await until('a plot with a few points', async () => (await page.locator('#plot-rate').getAttribute('aria-label'))?.includes('read'));
  did('plots are drawn');

  const card = page.locator(`.module[data-step="${step}"]`);
  const running = () => card.locator('.running').textContent();
  const first = await running();
  await card.locator('[name=module]').setInputFiles(module);
  await card.locator('[name=why]').fill('tried in a browser');
  await card.locator('[name=messages]').fill('2000');
  // By keyboard, as somebody without a mouse would.
  await card.locator('[name=shadow]').focus();
  await page.keyboard.press('Enter');
  await card.locator('.report table').waitFor();
  assert.notEqual((await card.locator('.differing').textContent()).trim(), '0');
  did('a module is tried beside the running one');
  await card.evaluate((element) => element.scrollIntoView());
  await picture('console-shadow');
  await card.locator('[name=promote]').click();
  await until('the new module to run', async () => await running() !== first);
  assert.match(await text('#said'), new RegExp(`${step} runs .* from epoch`));
  assert.match(await card.locator('.versions li').first().textContent(), /tried in a browser/);
  did('it is promoted');
  const promoted = await running();

  const pause = page.locator('#pause');
  await pause.click();
  await until('the pause to be shown', async () => await text('#phase') === 'paused');
  assert.match(await text('#explain'), /all sources are paused/);

  await until('a dead letter', async () => await page.locator('#letters li').count() > 0);
  // What was under way when it was paused has come to rest.
  await page.locator('#checkpoint').click();
  await until('the checkpoint', async () => /is visible/.test(await text('#said')));
  await page.getByRole('button', { name: 'Look' }).click();
  await page.waitForTimeout(1000);
  await page.locator('#letters summary').first().click();
  assert.match(await text('#letters pre'), /"reason"/);
  const open = () => page.locator('#letters-total').textContent();
  const one = page.locator('#letters li', { hasText: 'Replay this one' }).first();
  await page.locator('#h-letters').evaluate((element) => element.scrollIntoView());
  await picture('console-letters');
  if (!await one.getByRole('button').isVisible()) await one.locator('summary').click();
  const letters = await open();
  await one.getByRole('button', { name: 'Replay this one' }).click();
  await until('the replay to be told', async () => /1 letter replayed, 0 rejected again/.test(await text('#said')));
  await until('the letter to be marked', async () => (await page.locator('#letters li', { hasText: 'in replay' }).count()) > 0);
  did(`a dead letter is replayed: ${letters} → ${await open()}`);

  await pause.click();
  await until('it to run again', async () => await text('#phase') === 'running');
  did('it is paused, explained and resumed');

  await card.locator('[name=rollback]').click();
  await until('the old module to run again', async () => await running() === first);
  assert.notEqual(first, promoted);
  did('it is rolled back');

  await page.locator('#drain').click();
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('dialog[open]').count(), 0);
  await page.waitForTimeout(1500);
  assert.equal(await text('#phase'), 'running', 'nothing is drained that was not confirmed');

  await page.evaluate(() => scrollTo(0, 0));
  if (pictures) await page.waitForTimeout(20_000);
  await picture('console-light', { fullPage: true });
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.waitForTimeout(1500);
  await picture('console-dark', { fullPage: true });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.waitForTimeout(1500);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `on a phone nothing is wider than the screen: ${wide}`);
  await picture('console-phone', { fullPage: true });
  did('it fits a phone');
  const unnamed = await page.evaluate(() => [...document.querySelectorAll('button, input, select')]
    .filter((e) => !e.hidden && !(e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label') || e.closest('dialog'))).map((e) => e.outerHTML));
  assert.deepEqual(unnamed, [], 'everything that can be used has a name');
  assert.deepEqual([...asked], [origin], 'nothing is asked of anybody else');
  assert.deepEqual(trouble, [], 'the browser has no complaint');
  did('nothing is loaded from elsewhere, and nothing failed');
} catch (error) {
  console.log(`failed: ${error.stack}\nsaid: ${await text('#said').catch(() => '')}\nbrowser: ${trouble.join('\n')}`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
