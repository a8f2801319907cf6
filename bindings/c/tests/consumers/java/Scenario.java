// A Java program over the C interface by the foreign function API: records, a query, errors.

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;

final class Scenario {
    static final int OK = 0;
    static final int ABSENT = -1;
    static final int INVALID_INPUT = 1;
    static final int IN_USE = 16;

    private final Linker linker = Linker.nativeLinker();
    private final SymbolLookup library;
    private final Arena arena;
    private final MemorySegment error;

    private Scenario(String path, Arena arena) {
        this.library = SymbolLookup.libraryLookup(path, arena);
        this.arena = arena;
        this.error = arena.allocate(ADDRESS);
    }

    private MethodHandle function(String name, ValueLayout result, MemoryLayout... parameters) {
        var descriptor = result == null ? FunctionDescriptor.ofVoid(parameters) : FunctionDescriptor.of(result, parameters);
        return linker.downcallHandle(library.find(name).orElseThrow(), descriptor);
    }

    private MemorySegment text(String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        return bytes.length == 0 ? MemorySegment.NULL : arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes);
    }

    private String message() throws Throwable {
        var message = (MemorySegment) function("bolide_error_message", ADDRESS, ADDRESS).invoke(error.get(ADDRESS, 0));
        var text = message.reinterpret(Long.MAX_VALUE).getString(0);
        function("bolide_error_free", null, ADDRESS).invoke(error.get(ADDRESS, 0));
        return text;
    }

    private void expect(int expected, int code) throws Throwable {
        if (code != expected) {
            throw new AssertionError("code " + code + ", not " + expected + ": " + message());
        }
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    private String bytesAt(MemorySegment place, long offset) {
        long size = place.get(JAVA_LONG, offset + 8);
        byte[] bytes = place.get(ADDRESS, offset).reinterpret(size).toArray(ValueLayout.JAVA_BYTE);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private void run(String path) throws Throwable {
        check((int) function("bolide_abi_version", JAVA_INT).invoke() == 1, "the version of the interface");
        var place = arena.allocate(ADDRESS);
        var open = function("bolide_open", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
        expect(OK, (int) open.invoke(text(path), (long) path.length(), MemorySegment.NULL, place, error));
        var db = place.get(ADDRESS, 0);
        var create = function("bolide_collection_create", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
        expect(OK, (int) create.invoke(db, text("orders"), 6L, MemorySegment.NULL, place, error));
        var orders = place.get(ADDRESS, 0);

        var put = function("bolide_put", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS);
        for (int at = 0; at < 50; at++) {
            String key = String.format("o%02d", at);
            String record = "{\"total\":" + at + "}";
            expect(OK, (int) put.invoke(orders, text(key), 3L, text(record), (long) record.length(), error));
        }
        expect(INVALID_INPUT, (int) put.invoke(orders, text("x"), 1L, text("{"), 1L, error));
        check(message().contains("JSON"), "the message of invalid JSON");
        expect(INVALID_INPUT, (int) put.invoke(db, text("x"), 1L, text("{}"), 2L, error));
        check(message().contains("something else"), "the message of an object of another type");

        var get = function("bolide_get", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
        var bytes = arena.allocate(24, 8);
        expect(OK, (int) get.invoke(orders, text("o07"), 3L, MemorySegment.NULL, bytes, MemorySegment.NULL, error));
        check(bytesAt(bytes, 0).equals("{\"total\":7}"), "a record");
        function("bolide_bytes_free", null, ADDRESS).invoke(bytes);
        expect(ABSENT, (int) get.invoke(orders, text("x"), 1L, MemorySegment.NULL, bytes, MemorySegment.NULL, error));

        var newQuery = function("bolide_query_new", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
        String filter = "total in 10..19";
        expect(OK, (int) newQuery.invoke(text(filter), (long) filter.length(), place, error));
        var query = place.get(ADDRESS, 0);
        var find = function("bolide_find", JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
        expect(OK, (int) find.invoke(orders, query, MemorySegment.NULL, place, error));
        var answers = place.get(ADDRESS, 0);
        var next = function("bolide_answers_next", JAVA_INT, ADDRESS, ADDRESS, ADDRESS);
        var row = arena.allocate(56, 8);
        int count = 0;
        int code;
        while ((code = (int) next.invoke(answers, row, error)) == OK) {
            check(bytesAt(row, 0).equals("o" + (19 - count)), "the key of an answer");
            count++;
        }
        expect(ABSENT, code);
        check(count == 10, "answers: " + count);

        var close = function("bolide_close", JAVA_INT, ADDRESS, ADDRESS);
        expect(IN_USE, (int) close.invoke(db, error));
        check(message().contains("2 objects"), "the message of open objects");
        function("bolide_answers_free", null, ADDRESS).invoke(answers);
        function("bolide_query_free", null, ADDRESS).invoke(query);
        function("bolide_collection_free", null, ADDRESS).invoke(orders);
        expect(OK, (int) close.invoke(db, error));
    }

    public static void main(String[] arguments) throws Throwable {
        try (Arena arena = Arena.ofConfined()) {
            new Scenario(arguments[0], arena).run(arguments[1]);
        }
    }
}
