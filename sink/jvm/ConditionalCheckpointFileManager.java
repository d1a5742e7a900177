package holdfast.checkpoint;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * Checkpoint files on a store with conditional create: a file that must be new is one PUT with
 * If-None-Match, so of two drivers one succeeds and the other gets FileAlreadyExistsException.
 */
public final class ConditionalCheckpointFileManager implements CheckpointFileManager {
  private static final String CONDITIONAL =
      CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE;

  /** User metadata of an object: which write has made it. */
  private static final String WRITE_ID = "holdfast-write";

  private static final Set<String> TRIED = ConcurrentHashMap.newKeySet();

  private final FileSystem fs;
  private final Path root;

  public ConditionalCheckpointFileManager(Path path, Configuration configuration)
      throws IOException {
    root = path;
    fs = path.getFileSystem(configuration);
    if (!fs.hasPathCapability(path, CONDITIONAL)
        || !fs.hasPathCapability(path, CommonPathCapabilities.ABORTABLE_STREAM)) {
      throw refused(
          "its client cannot create a file only where there is none. S3 needs hadoop-aws 3.4.2 or"
              + " newer, with fs.s3a.create.conditional.enabled=true");
    }
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
    return unchecked(
        () -> {
          if (overwrite) return new OneWrite(fs.createFile(path).overwrite(true).build(), path, null);
          probe();
          return create(path);
        });
  }

  /** Once for each store and JVM: whether it refuses a second write of one name. */
  public void probe() throws IOException {
    if (!TRIED.contains(fs.getUri().toString())) tryOut();
  }

  private OneWrite create(Path path) throws IOException {
    String id = UUID.randomUUID().toString();
    FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path).overwrite(false);
    builder.must(CONDITIONAL, true);
    builder.must("fs.s3a.create.header." + WRITE_ID, id);
    return new OneWrite((FSDataOutputStream) builder.build(), path, id);
  }

  /** A store that does not know the condition may ignore it: so two writes of one name are tried. */
  private void tryOut() throws IOException {
    Path name = new Path(root, ".holdfast-" + UUID.randomUUID());
    try {
      create(name).close();
      create(name).close();
    } catch (FileAlreadyExistsException expected) {
      TRIED.add(fs.getUri().toString());
      return;
    } finally {
      fs.delete(name, false);
    }
    throw refused("the store ignores If-None-Match: a second write of one name has replaced the first");
  }

  private UnsupportedFileSystemException refused(String why) {
    return new UnsupportedFileSystemException(
        "a checkpoint at " + root + " is not safe with two drivers: " + why + ". Nothing was written");
  }

  /** A file that appears whole when it is closed, or not at all. */
  private final class OneWrite extends CancellableFSDataOutputStream {
    private final FSDataOutputStream out;
    private final Path path;
    private final String id; // null where it may replace
    private final AtomicBoolean ended = new AtomicBoolean();

    OneWrite(FSDataOutputStream out, Path path, String id) {
      super(out);
      this.out = out;
      this.path = path;
      this.id = id;
    }

    @Override
    public void close() throws IOException {
      if (ended.getAndSet(true)) return;
      try {
        out.close();
      } catch (IOException failure) {
        // A PUT whose answer was lost is sent again, and meets its own object.
        if (id == null || !isOwn(failure)) throw failure;
      }
    }

    private boolean isOwn(IOException failure) throws IOException {
      byte[] found;
      try {
        if (!fs.exists(path)) return false;
        found = fs.getXAttr(path, "header." + WRITE_ID);
      } catch (IOException unknown) {
        failure.addSuppressed(unknown);
        return false;
      }
      if (Arrays.equals(id.getBytes(StandardCharsets.UTF_8), found)) return true;
      FileAlreadyExistsException taken =
          new FileAlreadyExistsException(path + " was written by another driver");
      taken.initCause(failure);
      throw taken;
    }

    @Override
    public void cancel() {
      if (!ended.getAndSet(true)) out.abort();
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    return unchecked(() -> fs.open(path));
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return unchecked(() -> fs.listStatus(path, filter));
  }

  @Override
  public void mkdirs(Path path) {
    unchecked(() -> fs.mkdirs(path, FsPermission.getDirDefault()));
  }

  @Override
  public boolean exists(Path path) {
    return unchecked(() -> fs.exists(path));
  }

  @Override
  public void delete(Path path) {
    unchecked(() -> fs.delete(path, true));
  }

  @Override
  public boolean isLocal() {
    return false;
  }

  @Override
  public Path createCheckpointDirectory() {
    Path qualified = fs.makeQualified(root);
    mkdirs(qualified);
    return qualified;
  }

  private interface Call<T> {
    T run() throws IOException;
  }

  /** Scala's methods declare no exceptions, and Spark expects those of Hadoop. */
  private static <T> T unchecked(Call<T> call) {
    try {
      return call.run();
    } catch (IOException e) {
      throw ConditionalCheckpointFileManager.<RuntimeException>as(e);
    }
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E as(Throwable e) throws E {
    throw (E) e;
  }
}
