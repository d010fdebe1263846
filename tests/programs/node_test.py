#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""node's ways to write: the same files and output with and without NVCache. Its calls come from threads
of libuv as well as from its own. Without node the test is skipped."""

import shutil
import subprocess

import kit
from kit import comparison

SYNCHRONOUS = r"""
const fs = require('fs');
fs.mkdirSync('deep/er', {recursive: true});
const fd = fs.openSync('numbers', 'w+');
for (let i = 0; i < 2000; ++i) fs.writeSync(fd, `${i * 37} `);
fs.fsyncSync(fd);
fs.writeSync(fd, 'in between', 500);
fs.fdatasyncSync(fd);
fs.writevSync(fd, [Buffer.from('one '), Buffer.from('two')], 9000);
const bytes = Buffer.alloc(10);
fs.readSync(fd, bytes, 0, 10, 500);
console.log(bytes.toString(), fs.fstatSync(fd).size);
fs.ftruncateSync(fd, 9003);
fs.fsyncSync(fd);
fs.closeSync(fd);
for (let i = 0; i < 50; ++i) {
  fs.writeFileSync('new', `state ${i}`, {flush: true});
  fs.renameSync('new', 'state');
}
fs.appendFileSync('state', ' and more');
fs.copyFileSync('numbers', 'deep/er/copy');
fs.linkSync('state', 'deep/link');
fs.unlinkSync('state');
console.log(fs.readFileSync('deep/link', 'utf8'), fs.readdirSync('.', {recursive: true}).sort().join(' '));
"""
ASYNCHRONOUS = r"""
const fs = require('fs/promises'), {createReadStream, createWriteStream} = require('fs');
const {once} = require('events'), {pipeline} = require('stream/promises');
async function one(number) {
  const file = await fs.open(`file${number}`, 'w+');
  for (let i = 0; i < 40; ++i) {
    await file.write(Buffer.alloc(997, 65 + i % 26), 0, 997, i * 997);
    await (i % 2 ? file.sync() : file.datasync());
  }
  const {buffer} = await file.read(Buffer.alloc(3), 0, 3, 996);
  await file.truncate(30000 + number);
  await file.close();
  return buffer.toString();
}
async function main() {
  console.log((await Promise.all([...Array(8).keys()].map(one))).join(' '));
  const stream = createWriteStream('stream');
  for (let i = 0; i < 5000; ++i) if (!stream.write(`line ${i}\n`)) await once(stream, 'drain');
  stream.end();
  await once(stream, 'close');
  await pipeline(createReadStream('stream'), createWriteStream('copy'));
  const log = createWriteStream('copy', {flags: 'r+', start: 100});
  log.end('laid over');
  await once(log, 'close');
  console.log((await fs.stat('copy')).size, (await fs.readFile('copy')).subarray(95, 112).toString());
}
main();
"""
RINGS_SINCE = (1, 45)  # libuv
SCRIPTS = {"synchronous": SYNCHRONOUS, "asynchronous": ASYNCHRONOUS}
CASES = {name: [f"node {name}.js"] for name in SCRIPTS}


def prepare(folder):
    for name, text in SCRIPTS.items():
        (folder / f"{name}.js").write_text(text)


if __name__ == "__main__":
    if shutil.which("node") is None:
        kit.skip("there is no node", must_run_in_ci=False)
    # By its rings, all files of node are the kernel's (docs/limits.md).
    libuv = subprocess.run(["node", "-p", "process.versions.uv"], check=True, capture_output=True, text=True).stdout
    logged = CASES if tuple(map(int, libuv.split(".")[:2])) < RINGS_SINCE else ()
    comparison.main(__doc__, CASES, prepare, through_the_log=logged, hot=CASES, hot_through_the_log=logged)
