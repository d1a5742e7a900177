package holdfast.test;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;

/**
 * The local disk of a driver that stands still before a file gets its name: after Spark's manager
 * has looked for the name, and before Holdfast's links to it; or after that, before the checksum of
 * the temporary file gets its own.
 */
public final class HeldFileSystem extends LocalFileSystem {
  @Override
  public boolean rename(Path temporary, Path path) throws IOException {
    hold(path, "test.held");
    return super.rename(temporary, path);
  }

  @Override
  public File pathToFile(Path path) {
    hold(path, "test.held");
    return super.pathToFile(path);
  }

  @Override
  public Path getChecksumFile(Path path) {
    hold(path, "test.held.checksum");
    return super.getChecksumFile(path);
  }

  /** Waits while there is the file `test.held.by`, if the path is as the setting says. */
  private void hold(Path path, String setting) {
    java.nio.file.Path held = java.nio.file.Path.of(getConf().get("test.held.by"));
    if (!path.toString().matches(getConf().get(setting, "")) || Files.notExists(held)) return;
    try {
      Files.writeString(held.resolveSibling(held.getFileName() + ".met"), path.toString());
      while (Files.exists(held)) Thread.sleep(20);
    } catch (IOException | InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
