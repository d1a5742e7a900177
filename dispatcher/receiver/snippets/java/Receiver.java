import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.stream.Stream;
import javax.sql.DataSource;
import org.postgresql.ds.PGSimpleDataSource;

/**
 * A whole receiver on the JDK's HTTP server and JDBC: verify, BEGIN, inbox_receive, the action,
 * COMMIT, answer. PAYOUTS_SECRETS holds one "whsec_..." secret, or two with a space between during
 * a rotation; JDBC_URL names the database, with user and password.
 */
public final class Receiver {
    private static final List<String> SECRETS =
            List.of(System.getenv("PAYOUTS_SECRETS").split(" "));
    private static final ObjectMapper JSON = new ObjectMapper();

    private record Receipt(String key, String outcome, boolean replayed, String appliedAt) {}

    private record Hold(String merchant, String action, long sequence) {}

    private static final String RECEIVE = """
            SELECT outcome, replayed,
                   to_char(applied_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
              FROM payouts.inbox_receive(?, ?, ?, ?)""";
    private static final String HOLD =
            "INSERT INTO payouts.hold (merchant_id, action, key) VALUES (?, ?, ?)";

    private static Receipt receive(HttpExchange exchange, DataSource pool) throws Exception {
        Verify.check(exchange.getRequestMethod().equals("POST"), "method_not_allowed", 405);
        byte[] body = exchange.getRequestBody().readNBytes((256 << 10) + 1);
        Verify.check(body.length <= 256 << 10, "body_too_large", 413);
        var headers = exchange.getRequestHeaders();
        String key = Verify.verify(headers, body, SECRETS, Instant.now()); // of these very bytes
        Hold hold = parse(body, key, headers.getOrDefault("Idempotency-Key", List.of(key)));
        try (var connection = pool.getConnection();
                var call = connection.prepareStatement(RECEIVE);
                var action = connection.prepareStatement(HOLD)) {
            connection.setAutoCommit(false);
            call.setString(1, key);
            call.setBytes(2, MessageDigest.getInstance("SHA-256").digest(body));
            call.setString(3, hold.merchant());
            call.setLong(4, hold.sequence());
            var row = call.executeQuery();
            row.next();
            var receipt = new Receipt(key, row.getString(1), row.getBoolean(2), row.getString(3));
            if (receipt.outcome().equals("applied")) {
                action.setString(1, hold.merchant());
                action.setString(2, hold.action());
                action.setString(3, key);
                action.executeUpdate();
            }
            connection.commit(); // key and action; after an exception neither: close() rolls back
            return receipt;
        }
    }

    private static Hold parse(byte[] body, String id, List<String> idempotencyKeys)
            throws Exception {
        JsonNode envelope;
        try {
            envelope = JSON.readTree(body);
        } catch (JsonProcessingException error) {
            throw new Verify.Refused("bad_body", 400);
        }
        var texts = Stream.of("type", "timestamp", "key").map(envelope::path);
        JsonNode sequence = envelope.path("sequence");
        Verify.check(texts.allMatch(JsonNode::isTextual), "bad_body", 400);
        Verify.check(envelope.path("data").isObject(), "bad_body", 400);
        Verify.check(sequence.isIntegralNumber() && sequence.canConvertToLong(), "bad_body", 400);
        String key = envelope.path("key").textValue();
        Verify.check(sequence.longValue() >= 1 && key.matches("hf_[0-9a-f]{32}"), "bad_body", 400);
        boolean named = Stream.of(id, '"' + id + '"').anyMatch(
                each -> idempotencyKeys.equals(List.of(each)));
        Verify.check(key.equals(id) && named, "key_mismatch", 400);
        String type = envelope.path("type").textValue();
        Verify.check(type.matches("payout_hold\\.(block|release)"), "unknown_type", 400);
        JsonNode merchant = envelope.path("data").path("merchant_id");
        Verify.check(merchant.isTextual(), "bad_data", 422);
        int bytes = merchant.textValue().getBytes(StandardCharsets.UTF_8).length;
        // Without NUL, which Postgres does not store.
        boolean fits = bytes >= 1 && bytes <= 1024 && merchant.textValue().indexOf(0) < 0;
        Verify.check(fits, "bad_data", 422);
        return new Hold(merchant.textValue(), type.split("\\.")[1], sequence.longValue());
    }

    private static void handle(HttpExchange exchange, DataSource pool) throws IOException {
        int status = 200;
        var headers = exchange.getResponseHeaders();
        var content = new HashMap<String, Object>();
        try {
            Receipt receipt = receive(exchange, pool);
            boolean running = receipt.outcome().equals("running");
            status = running ? 409 : receipt.outcome().equals("conflict") ? 422 : 200;
            content.put("key", receipt.key());
            content.put("outcome", running ? "in_progress" : receipt.outcome());
            content.put("applied_at", receipt.appliedAt());
            content.put("receipt", null);
            headers.set("Content-Type", "application/json");
            headers.set("Holdfast-Key-Window", "forever"); // until you prune
            if (receipt.replayed()) {
                headers.set("Idempotency-Replayed", "true");
            }
        } catch (Exception error) {
            var refused = error instanceof Verify.Refused known ? known : null;
            if (refused == null) {
                System.err.println(error); // sent again, it is applied or a duplicate
            }
            status = refused == null ? 503 : refused.status;
            String reason = refused == null ? "unavailable" : refused.getMessage();
            content.putAll(Map.of("status", status, "reason", reason));
            headers.set("Content-Type", "application/problem+json");
        }
        switch (status) {
            case 405 -> headers.set("Allow", "POST");
            case 409, 503 -> headers.set("Retry-After", "1");
            default -> {}
        }
        byte[] bytes = JSON.writeValueAsBytes(content);
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        System.setProperty("sun.net.httpserver.maxReqTime", "10"); // seconds for a whole request
        var pool = new PGSimpleDataSource(); // opens a connection each time; a service has a pool
        pool.setUrl(System.getenv("JDBC_URL"));
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8080"));
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/", exchange -> handle(exchange, pool));
        server.setExecutor(Executors.newFixedThreadPool(20));
        server.start();
    }
}
