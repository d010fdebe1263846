// SPDX-License-Identifier: BSD-3-Clause
//
// Java's ways to a file, in the current folder: channels, or mappings besides.
//
//   java Channels.java channels|mapped
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Random;
import java.util.stream.IntStream;

public class Channels {
  static byte[] bytes(Random random, int size) {
    byte[] result = new byte[size];
    random.nextBytes(result);
    return result;
  }

  static FileChannel open(String name, StandardOpenOption... options) throws IOException {
    return FileChannel.open(Path.of(name), options);
  }

  static void channels() throws Exception {
    Random random = new Random(5);
    try (FileChannel file = open("file", StandardOpenOption.CREATE, StandardOpenOption.READ,
             StandardOpenOption.WRITE)) {
      for (int i = 0; i < 300; ++i) {
        byte[] data = bytes(random, 1 + random.nextInt(9000));
        long at = random.nextInt(1 << 20);
        while (file.write(ByteBuffer.wrap(data), at) != data.length) {}
        ByteBuffer found = ByteBuffer.allocateDirect(data.length);
        file.read(found, at);
        if (!found.flip().equals(ByteBuffer.wrap(data))) throw new Exception("not what was written");
        if (i % 50 == 0) file.force(i % 100 == 0);
      }
      file.position(1000);
      ByteBuffer[] parts = {ByteBuffer.wrap("one ".getBytes()), ByteBuffer.wrap("two ".getBytes())};
      System.out.println(file.write(parts) + " at " + file.position() + " of " + file.size());
      file.truncate(500000);
      System.out.println(file.position() + " of " + file.size());
      try (FileLock lock = file.lock(0, 100, false);
           FileChannel copy = open("copy", StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
        System.out.println(lock.isValid() + " " + file.transferTo(100, 400000, copy));
        System.out.println(copy.transferFrom(file.position(0), 10, 5000) + " of " + copy.size());
      }
    }
    try (FileChannel log = open("log", StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
      for (int i = 0; i < 500; ++i) log.write(ByteBuffer.wrap(("line " + i + "\n").getBytes()));
    }
    try (RandomAccessFile file = new RandomAccessFile("random", "rwd")) {
      file.seek(10000);
      file.writeUTF("at ten thousand");
      file.seek(10000);
      System.out.println(file.readUTF() + " " + file.length());
      file.setLength(20000);
    }
    Files.move(Path.of("log"), Path.of("moved"), StandardCopyOption.ATOMIC_MOVE);
    Files.copy(Path.of("moved"), Path.of("copied"));
    System.out.println(Files.readAllLines(Path.of("copied")).size() + " " + Files.mismatch(
        Path.of("moved"), Path.of("copied")));
    // Threads that write to one channel, each its own pages; last, so that the log is looked at.
    try (FileChannel shared = open("shared", StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
      IntStream.range(0, 200).parallel().forEach(i -> {
        try {
          shared.write(ByteBuffer.wrap(bytes(new Random(i), 3000)), i * 3000L);
        } catch (IOException e) {
          throw new RuntimeException(e);
        }
      });
      System.out.println(shared.size());
    }
  }

  static void mapped() throws Exception {
    try (FileChannel file = open("mapped", StandardOpenOption.CREATE, StandardOpenOption.READ,
             StandardOpenOption.WRITE)) {
      file.write(ByteBuffer.wrap(bytes(new Random(7), 100000)));
      MappedByteBuffer map = file.map(FileChannel.MapMode.READ_WRITE, 5000, 200000);
      System.out.println(map.getLong(1000) + " of " + file.size());
      map.putLong(3000, 0x0123456789abcdefL);
      ByteBuffer found = ByteBuffer.allocate(8);
      file.read(found, 8000);
      System.out.println(Long.toHexString(found.flip().getLong()));
      file.write(ByteBuffer.wrap("by write".getBytes()), 9000);
      System.out.println((char) map.get(4000) + " " + (char) map.get(4007));
      for (int i = 150000; i < 200000; ++i) map.put(i, (byte) i);
      map.force();
    }
    // The machine itself uses SIGSEGV.
    try {
      Object nothing = System.getProperty("there is no such property");
      System.out.println(nothing.hashCode());
    } catch (NullPointerException e) {
      System.out.println("null");
    }
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("channels")) {
      channels();
    } else {
      mapped();
    }
  }
}
