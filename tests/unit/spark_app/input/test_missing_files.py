from holdfast.spark_app.input.missing_files import FileGone, describe
from holdfast.spark_app.lifecycle.failure import Cause, diagnose


def test_the_files_that_are_gone_are_told_by_the_first_one_and_their_number() -> None:
    one = describe(["file:/data/events/3.jsonl"], 4)
    assert one.startswith("/data/events/3.jsonl is gone, and batch 4 was planned to read it. ")
    three = describe(["s3a://bucket/a b.jsonl", "file:/b", "file:/c"], 4)
    assert three.startswith("s3a://bucket/a b.jsonl (and 2 more) are gone, and batch 4 was planned")


def test_a_file_that_is_gone_may_come_back_and_has_its_own_word_on_what_to_do() -> None:
    error = FileGone(describe(["s3a://me:secret@bucket/new\nline"], 4))
    gone = diagnose(error, jvm_gone=True)
    assert (gone.cause, gone.permanent) == (Cause.FILE, False)
    assert gone.message.startswith("s3a://me:***@bucket/new line is gone, and batch 4 ")
    assert gone.message.endswith("put an empty file in its place.")
    assert "\n" not in gone.message
