#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Everyday programs: what they leave on the disk is the same with and without NVCache."""

from kit import comparison

CASES = {
    "cp": ["cp -a source copy", "cp source/words copy/words2", "cat source/words >> copy/words2",
           "cp -p --reflink=auto source/deep/file8 auto", "cp --reflink=never source/words never",
           "cp --sparse=always source/deep/holes sparse", "cp --sparse=never source/deep/holes full",
           "cp -u source/words never", "cp --remove-destination auto never", "cp -l sparse linked",
           "cp --backup=numbered source/words copy/words2", "cat source/words | cp /dev/stdin piped",
           "cp -p --sparse=never --reflink=never source/words last"],
    "mv": ["cp -a source moved", "cat source/words > a", "mv a b", "echo more >> b", "mv b moved/words",
           "echo new > a", "mv -n a moved/words", "mv --backup=simple a moved/words",
           "mv moved again", "mv again/deep/file8 again/deep/file7", "cat again/words"],
    "dd": ["dd if=source/words of=a bs=777 conv=fsync status=none",
           "dd if=source/words of=a bs=100 seek=31 count=9 conv=notrunc status=none",
           "dd if=a of=a bs=1 skip=5 seek=200 count=3000 conv=notrunc,fdatasync status=none",
           "dd if=source/words of=b bs=4k oflag=append conv=notrunc,fsync status=none",
           "dd if=source/words of=b bs=1000 count=50 oflag=append conv=notrunc status=none",
           "dd if=source/deep/file7 of=c bs=4k oflag=direct status=none",
           "dd if=source/words of=c bs=64k seek=3 conv=notrunc oflag=sync status=none",
           "dd if=c bs=4k iflag=direct status=none | cksum",
           "dd if=source/deep/holes of=d bs=4k conv=sparse status=none",
           "truncate -s 12345 a", "cmp a source/words || true",
           "dd if=source/words of=e bs=5000 oflag=dsync iflag=fullblock status=none"],
    "tar": ["tar cf archive.tar source", "mkdir out", "tar xf archive.tar -C out",
            "tar czf archive.tgz --mtime=@0 source", "tar tzf archive.tgz",
            "tar rf archive.tar --mtime=@0 archive.tgz", "tar --delete -f archive.tar source/words",
            "tar cSf sparse.tar source/deep/holes", "mkdir sparse", "tar xSf sparse.tar -C sparse"],
    "gzip": ["gzip -nk source/words", "mv source/words.gz .", "gzip -dc words.gz > words",
             "cmp words source/words", "gzip -d words.gz -f", "gzip -n9 words", "gzip -lt words.gz",
             "cp -p source/words w", "gzip -n w"],
    "sort": ["mkdir t", "sort -S 1M -T t -o sorted source/words", "sort -r source/words > reverse",
             "sort -S 100k -T t --batch-size=3 -k2 -o sorted2 source/words",
             "sort -u -o sorted sorted reverse", "ls t", "sort -m sorted sorted2 | uniq -c > merged",
             "shuf --random-source=source/deep/file8 source/words | split -l 7000 - part",
             "sort -o last part*"],
    "sed": ["cp source/words w", "sed -i 's/word/WORD/; /7/d' w", "sed -i.bak '1,100d' w", "wc w",
            "sed -n '1~50w every' w", "tac w > c", "sed -i '$d' w c"],
    "awk": ["awk '{ print $2, $1 > (\"part\" $1 % 7) } END { print NR }' source/words",
            "awk '{ print >> \"both\" }' part1 part2",
            "awk '{ n[length($0)]++ } END { for (l in n) print l, n[l] | \"sort\" }' source/words",
            "awk 'BEGIN { f = \"log\"; print 1 > f; close(f); while ((getline l < f) > 0) print l; "
            "print 2 >> f; close(f); system(\"cat log\") }'"],
    "perl": ["cp -p source/words w", "perl -i -pe 's/word/WORD/; $_ = q() if /7/' w",
             "perl -i.bak -ne 'print unless $. % 3' w",
             r"""perl -e 'open my $f, "+>", "p" or die; $f->autoflush; seek $f, 5000, 0;
               print $f "x" x 100; truncate $f, 5050; seek $f, -10, 2; print $f "end\n";
               sysseek $f, 0, 0; syswrite $f, "head"; sysseek $f, 0, 0; sysread $f, $b, 4;
               print "$b ", -s $f, " ", (stat "p")[7], "\n"; rename "p", "q"; print $f "late\n";
               close $f; open $f, "<", "q"; local $/; $_ = <$f>; print length, " ", substr($_, -5)'"""],
    "shell": ["for i in $(seq 300); do echo line $i >> log; done",
              "exec 5<>log; echo first >&5; head -2 log; exec 5>&-", "wc -c < log",
              "(echo a; echo b) > two; mv two three; ln three four; rm three; cat four",
              "mkdir d; mv four d; echo c >> d/four; cat d/four",
              "{ echo one; sed s/a/b/ d/four; echo two; } > grouped; cat grouped",
              "set -C; echo x > grouped || echo refused; set +C",
              "(echo in a child >> log) & wait; tee -a log t2 < d/four; tail -n 3 log"],
    "rsync": ["rsync -ai --no-motd source/ copy", "rsync -ai source/ copy",
              "dd if=source/words of=source/deep/file8 bs=1k seek=99 count=3 conv=notrunc status=none",
              "echo more >> source/words", "touch -d @1700000000 source/words source/deep/file8",
              "rsync -ai --inplace --no-whole-file source/ copy", "rsync -aic source/ copy",
              "rm source/deep/file3", "rsync -ai --delete --append-verify source/ copy",
              "rsync -aiS --no-whole-file --fsync source/ copy2", "diff -r source copy",
              "diff -r source copy2"],
}
# The last program of each writes to a descriptor of its own. That of the others uses stdio, or
# descriptor 1 as dd does, or only reads.
THROUGH_THE_LOG = ("cp", "tar", "gzip", "perl", "rsync")


def prepare(folder):
    comparison.source_tree(folder / "source")


if __name__ == "__main__":
    comparison.main(__doc__, CASES, prepare, through_the_log=THROUGH_THE_LOG, hot=("dd", "shell"))
