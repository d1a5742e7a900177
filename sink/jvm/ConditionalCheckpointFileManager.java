package holdfast.checkpoint;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
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
 * Checkpoint files on a store with conditional create: a file that must be new is one write that
 * the store refuses where there is a file of that name, so of two drivers one succeeds and the other
 * gets FileAlreadyExistsException. S3's is a PUT with If-None-Match, by an option of Hadoop; that of
 * Google's client an upload with ifGenerationMatch=0, which its plain create sends.
 */
public final class ConditionalCheckpointFileManager implements CheckpointFileManager {
  private static final String CONDITIONAL =
      CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE;

  /** Of the S3 client: write without listing the name as a folder's, which costs as much again. */
  private static final String NO_PROBE = "fs.s3a.create.performance";

  /** Folders of Spark's logs by name. What lies in them, and below this one, is never a folder. */
  private static final Set<String> LOGS = Set.of("offsets", "commits");

  private static final String SOURCES = "sources";

  /** User metadata of an object: which write has made it. */
  private static final String WRITE_ID = "holdfast-write";

  /** Google's own client. Hadoop's (org.apache.hadoop.fs.gs) was not tried. */
  private static final String GOOGLES = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem";

  private static final Set<String> TRIED = ConcurrentHashMap.newKeySet();

  private final FileSystem fs;
  private final Path root;

  /** Whether Hadoop's option says the condition, as on S3; else it is Google's client. */
  private final boolean byOption;

  public ConditionalCheckpointFileManager(Path path, Configuration configuration)
      throws IOException {
    root = path;
    fs = path.getFileSystem(configuration);
    byOption =
        fs.hasPathCapability(path, CONDITIONAL)
            && fs.hasPathCapability(path, CommonPathCapabilities.ABORTABLE_STREAM);
    if (!byOption && !fs.getClass().getName().equals(GOOGLES)) {
      throw refused(
          "its client cannot create a file only where there is none. S3 needs hadoop-aws 3.4.2 or"
              + " newer, with fs.s3a.create.conditional.enabled=true; Google's store needs "
              + GOOGLES);
    }
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
    return unchecked(
        () -> {
          if (!overwrite) probe();
          if (!byOption) return overwrite ? new Upload(path) : new BufferedUpload(path);
          if (!overwrite) return create(path);
          FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path).overwrite(true);
          builder.opt(NO_PROBE, true);
          return new OneWrite((FSDataOutputStream) builder.build(), path, null);
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
    // Both begin before the first ends: a client that only looks whether there is a file finds none.
    FSDataOutputStream first = begun(name);
    FSDataOutputStream second = begun(name);
    try {
      first.close();
      second.close();
    } catch (IOException failure) {
      if (!isTaken(failure)) throw failure;
      TRIED.add(fs.getUri().toString());
      return;
    } finally {
      fs.delete(name, false);
    }
    throw refused(
        "the store ignores the condition (S3's If-None-Match, Google's ifGenerationMatch): a second"
            + " write of one name has replaced the first");
  }

  private FSDataOutputStream begun(Path name) throws IOException {
    return byOption ? create(name) : fs.create(name, false);
  }

  /** Whether a write failed because there is a file of that name. */
  private static boolean isTaken(IOException failure) {
    if (failure instanceof FileAlreadyExistsException) return true;
    for (Throwable each = failure; each != null; each = each.getCause()) {
      // Of Google's client, which has its own copy of the class.
      if (String.valueOf(each.getMessage()).startsWith("412 Precondition Failed")) return true;
    }
    return false;
  }

  private static FileAlreadyExistsException taken(Path path, IOException failure) {
    FileAlreadyExistsException taken =
        new FileAlreadyExistsException(path + " was written by another driver");
    taken.initCause(failure);
    return taken;
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
      throw taken(path, failure);
    }

    @Override
    public void cancel() {
      if (!ended.getAndSet(true)) out.abort();
    }
  }

  /**
   * A new file by Google's client, whose stream cannot be given up: closing it is what makes the
   * file. So nothing is uploaded before it is whole. An upload whose answer was lost is asked for by
   * its session, and knows its own file.
   */
  private final class BufferedUpload extends CancellableFSDataOutputStream {
    private final ByteArrayOutputStream content;
    private final Path path;
    private final AtomicBoolean ended = new AtomicBoolean();

    BufferedUpload(Path path) {
      this(path, new ByteArrayOutputStream());
    }

    private BufferedUpload(Path path, ByteArrayOutputStream content) {
      super(content);
      this.path = path;
      this.content = content;
    }

    @Override
    public void close() throws IOException {
      if (ended.getAndSet(true)) return;
      try {
        FSDataOutputStream out = fs.create(path, false);
        content.writeTo(out);
        out.close();
      } catch (IOException failure) {
        throw isTaken(failure) ? taken(path, failure) : failure;
      }
    }

    @Override
    public void cancel() {
      ended.set(true);
    }
  }

  /** A file that may be replaced, as one of the state, whose name nobody else has. */
  private final class Upload extends CancellableFSDataOutputStream {
    private final FSDataOutputStream out;
    private final Path path;
    private final AtomicBoolean ended = new AtomicBoolean();

    Upload(Path path) throws IOException {
      this(path, fs.create(path, true));
    }

    private Upload(Path path, FSDataOutputStream out) {
      super(out);
      this.path = path;
      this.out = out;
    }

    @Override
    public void close() throws IOException {
      if (!ended.getAndSet(true)) out.close();
    }

    /** Nothing refers to it yet: a crash in between leaves a file that nobody reads. */
    @Override
    public void cancel() {
      if (ended.getAndSet(true)) return;
      try {
        out.close();
        fs.delete(path, false);
      } catch (IOException unfinished) {
        // There may be a part of a file, which nobody reads.
      }
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
    return unchecked(
        () -> {
          if (!byOption || !isLogEntry(path)) return fs.exists(path);
          // Where there is no file, the client would list the name as a folder's.
          try {
            fs.open(path).close();
            return true;
          } catch (FileNotFoundException none) {
            return false;
          }
        });
  }

  private static boolean isLogEntry(Path path) {
    Path folder = path.getParent();
    Path above = folder == null ? null : folder.getParent();
    return above != null
        && (LOGS.contains(folder.getName()) || SOURCES.equals(above.getName()));
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
