package holdfast.checkpoint;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Checkpoint files on a local disk: a file that must be new gets its name by a hard link, one step
 * that fails where the name is taken. Spark's own managers look for the name, and then rename.
 */
public final class LinkingCheckpointFileManager extends FileSystemBasedCheckpointFileManager {
  private final LocalFileSystem local;

  public LinkingCheckpointFileManager(Path path, Configuration configuration) throws IOException {
    super(path, configuration);
    if (!(path.getFileSystem(configuration) instanceof LocalFileSystem found)) {
      throw new UnsupportedFileSystemException(
          "a checkpoint at " + path + " is on no local disk, where files can be linked");
    }
    local = found;
  }

  @Override
  public void renameTempFile(Path temporary, Path path, boolean overwrite) {
    if (overwrite) {
      super.renameTempFile(temporary, path, true);
      return;
    }
    try {
      link(temporary, path);
    } catch (IOException e) {
      throw LinkingCheckpointFileManager.<RuntimeException>as(e);
    }
  }

  private void link(Path temporary, Path path) throws IOException {
    java.nio.file.Path written = local.pathToFile(temporary).toPath();
    java.nio.file.Path name = local.pathToFile(path).toPath();
    try {
      Files.createLink(name, written);
    } catch (java.nio.file.FileAlreadyExistsException taken) {
      // A network file system may report a link that it has made: its answer was lost.
      if (!Files.isSameFile(name, written)) {
        local.delete(temporary, false);
        throw new FileAlreadyExistsException(path + " was written by another driver");
      }
    } catch (UnsupportedOperationException | IOException failure) {
      throw new IOException(
          path + " cannot get its name by a hard link, which a checkpoint on a local disk needs,"
              + " so that two drivers do not replace each other's files: " + failure, failure);
    }
    Path checksum = local.getChecksumFile(temporary);
    if (local.getRawFileSystem().exists(checksum)) {
      // A newer driver may have removed the file meanwhile, and written its own with its checksum.
      if (Files.exists(name) && Files.isSameFile(name, written)) {
        local.getRawFileSystem().rename(checksum, local.getChecksumFile(path));
      } else {
        local.getRawFileSystem().delete(checksum, false);
      }
    }
    local.getRawFileSystem().delete(temporary, false);
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E as(Throwable e) throws E {
    throw (E) e;
  }
}
