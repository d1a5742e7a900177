package holdfast.test;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;

/**
 * The local disk of a driver that stands still before a file gets its name: after Spark's manager
 * has looked for the name, and before Holdfast's links to it.
 */
public final class HeldFileSystem extends LocalFileSystem {
  @Override
  public boolean rename(Path temporary, Path path) throws IOException {
    hold(path);
    return super.rename(temporary, path);
  }

  @Override
  public File pathToFile(Path path) {
    hold(path);
    return super.pathToFile(path);
  }

  /** Waits while there is the file `test.held.by`, if the path ends as `test.held` says. */
  private void hold(Path path) {
    java.nio.file.Path held = java.nio.file.Path.of(getConf().get("test.held.by"));
    if (!path.toString().matches(getConf().get("test.held")) || Files.notExists(held)) return;
    try {
      Files.writeString(held.resolveSibling(held.getFileName() + ".met"), path.toString());
      while (Files.exists(held)) Thread.sleep(20);
    } catch (IOException | InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
