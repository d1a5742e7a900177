import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Tells whether a request is a genuine delivery. Java 17 or newer, no libraries. */
public final class Verify {
    /** The message is the reason, the status that of the answer. */
    public static final class Refused extends Exception {
        private static final long serialVersionUID = 1;
        public final int status;

        Refused(String reason, int status) {
            super(reason);
            this.status = status;
        }
    }

    private static final List<String> NAMES =
            List.of("webhook-id", "webhook-timestamp", "webhook-signature");
    private static final List<String> ONCE =
            List.of("webhook-id", "webhook-timestamp", "webhook-signature", "content-encoding");
    private static final Pattern SIGNATURE =
            Pattern.compile("v1,([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)");

    /**
     * Returns webhook-id; compare it with the `key` of the parsed body.
     *
     * @param headers every value of every header, names in any case
     * @param body the raw bytes
     * @param secrets "whsec_..." texts: two during a rotation
     */
    public static String verify(
            Map<String, List<String>> headers, byte[] body, List<String> secrets, Instant now)
            throws Refused, GeneralSecurityException {
        Map<String, List<String>> fields = new TreeMap<>();
        headers.forEach((name, values) -> {
            if (name != null) {
                String lower = name.toLowerCase(Locale.ROOT);
                fields.computeIfAbsent(lower, each -> new ArrayList<>()).addAll(values);
            }
        });
        for (String name : ONCE) {
            check(fields.getOrDefault(name, List.of()).size() <= 1, "duplicate_header");
        }
        for (String name : ONCE) {
            boolean ascii = fields.getOrDefault(name, List.of("")).get(0).matches("\\p{ASCII}*");
            check(ascii, "bad_header");
        }
        for (String name : NAMES) {
            check(!fields.getOrDefault(name, List.of("")).get(0).isEmpty(), "missing_header");
        }
        for (String encoding : fields.getOrDefault("content-encoding", List.of())) {
            check(encoding.equalsIgnoreCase("identity"), "encoded_body");
        }
        String id = fields.get(NAMES.get(0)).get(0);
        String timestamp = fields.get(NAMES.get(1)).get(0);
        check(id.matches("[A-Za-z0-9_-]{1,256}"), "bad_id");
        check(timestamp.matches("0|[1-9][0-9]{0,11}"), "bad_timestamp");
        long age = now.getEpochSecond() - Long.parseLong(timestamp);
        check(age <= 300, "too_old");
        check(age >= -300, "too_new");
        String[] entries = fields.get(NAMES.get(2)).get(0).split(" ", -1);
        check(entries.length <= 16, "too_many_signatures");
        List<byte[]> given = new ArrayList<>();
        for (String entry : entries) {
            Matcher found = SIGNATURE.matcher(entry);
            if (found.matches()) {
                given.add(Base64.getDecoder().decode(found.group(1)));
            }
        }
        check(!given.isEmpty(), "bad_signature");
        boolean genuine = false;
        for (String secret : secrets) {
            byte[] key = Base64.getDecoder().decode(secret.replaceFirst("^whsec_", ""));
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.US_ASCII));
            byte[] expected = mac.doFinal(body);
            for (byte[] candidate : given) {
                genuine |= MessageDigest.isEqual(expected, candidate); // constant time
            }
        }
        check(genuine, "no_match");
        return id;
    }

    private static void check(boolean holds, String reason) throws Refused {
        boolean unknown = List.of("too_old", "too_new", "no_match").contains(reason);
        check(holds, reason, unknown ? 401 : 400);
    }

    static void check(boolean holds, String reason, int status) throws Refused {
        if (!holds) {
            throw new Refused(reason, status);
        }
    }

    private Verify() {}
}
