import com.fasterxml.jackson.annotation.JsonAutoDetect;
import com.fasterxml.jackson.annotation.PropertyAccessor;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NamespaceNotEmptyException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.NotFoundException;
import org.apache.iceberg.exceptions.UnprocessableEntityException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.RegisterTableRequest;
import org.apache.iceberg.rest.requests.RenameTableRequest;
import org.apache.iceberg.rest.requests.UpdateNamespacePropertiesRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;

/**
 * An Iceberg REST catalog: Apache Iceberg's own handlers over its JDBC catalog. Only the routing of addresses is ours.
 *
 * <p>For tests it can misbehave: {@code POST /fault?when=after&status=503&count=1} lets the next commit of a table take
 * effect and answers 503; {@code when=before} refuses it instead; {@code status=0} hangs up without an answer. {@code GET
 * /fault} tells how many are still to come.
 */
public final class CatalogServer {
  private final ObjectMapper json = new ObjectMapper();
  private final Catalog catalog;
  private final SupportsNamespaces namespaces;
  private Fault fault = new Fault("none", 0, 0);

  private record Fault(String when, int status, int count) {}

  /** A planned failure. */
  private static final class Injected extends RuntimeException {
    final int status;

    Injected(int status) {
      super("a fault that the test asked for");
      this.status = status;
    }
  }

  private CatalogServer(Map<String, String> properties) {
    json.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    json.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    json.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
    RESTSerializers.registerAll(json);
    catalog = CatalogUtil.buildIcebergCatalog("rest", properties, new Configuration());
    namespaces = (SupportsNamespaces) catalog;
  }

  /** The answer to a request; null stands for 204. */
  private Object route(String method, String[] path, byte[] body, Map<String, String> query) throws IOException {
    if (path[0].equals("config")) {
      return ConfigResponse.builder().build();
    }
    if (path[0].equals("namespaces")) {
      if (path.length == 1) {
        String parent = query.get("parent");
        return method.equals("GET")
            ? CatalogHandlers.listNamespaces(namespaces, parent == null ? Namespace.empty() : namespace(parent))
            : CatalogHandlers.createNamespace(namespaces, json.readValue(body, CreateNamespaceRequest.class));
      }
      return inNamespace(method, namespace(path[1]), path, body, query);
    }
    if (path.length == 2 && path[0].equals("tables") && path[1].equals("rename")) {
      CatalogHandlers.renameTable(catalog, json.readValue(body, RenameTableRequest.class));
      return null;
    }
    throw new UnsupportedOperationException(method + " " + String.join("/", path));
  }

  private Object inNamespace(String method, Namespace namespace, String[] path, byte[] body, Map<String, String> query)
      throws IOException {
    String part = path.length == 2 ? "" : path[2];
    switch (part) {
      case "":
        switch (method) {
          case "GET":
            return CatalogHandlers.loadNamespace(namespaces, namespace);
          case "HEAD":
            CatalogHandlers.namespaceExists(namespaces, namespace);
            return null;
          case "DELETE":
            CatalogHandlers.dropNamespace(namespaces, namespace);
            return null;
        }
        break;
      case "properties":
        return CatalogHandlers.updateNamespaceProperties(
            namespaces, namespace, json.readValue(body, UpdateNamespacePropertiesRequest.class));
      case "register":
        return CatalogHandlers.registerTable(catalog, namespace, json.readValue(body, RegisterTableRequest.class));
      case "tables":
        if (path.length > 3) {
          boolean metrics = path.length == 5 && path[4].equals("metrics");
          return metrics ? null : onTable(method, TableIdentifier.of(namespace, decode(path[3])), body, query);
        }
        if (method.equals("GET")) {
          return CatalogHandlers.listTables(catalog, namespace);
        }
        CreateTableRequest request = json.readValue(body, CreateTableRequest.class);
        request.validate();
        return request.stageCreate()
            ? CatalogHandlers.stageTableCreate(catalog, namespace, request)
            : CatalogHandlers.createTable(catalog, namespace, request);
    }
    throw new UnsupportedOperationException(method + " " + String.join("/", path));
  }

  private Object onTable(String method, TableIdentifier table, byte[] body, Map<String, String> query) throws IOException {
    switch (method) {
      case "GET":
        return CatalogHandlers.loadTable(catalog, table, SnapshotMode.ALL);
      case "HEAD":
        CatalogHandlers.tableExists(catalog, table);
        return null;
      case "DELETE":
        if ("true".equals(query.get("purgeRequested"))) {
          CatalogHandlers.purgeTable(catalog, table);
        } else {
          CatalogHandlers.dropTable(catalog, table);
        }
        return null;
      case "POST":
        UpdateTableRequest request = json.readValue(body, UpdateTableRequest.class);
        failIf("before");
        Object answer = CatalogHandlers.updateTable(catalog, table, request);
        failIf("after");
        return answer;
    }
    throw new UnsupportedOperationException(method + " " + table);
  }

  private synchronized void failIf(String when) {
    if (fault.when.equals(when) && fault.count > 0) {
      fault = new Fault(when, fault.status, fault.count - 1);
      throw new Injected(fault.status);
    }
  }

  private synchronized int faultsLeft() {
    return fault.count;
  }

  private synchronized void plan(Map<String, String> query) {
    int status = Integer.parseInt(query.getOrDefault("status", "503"));
    fault = new Fault(query.getOrDefault("when", "after"), status, Integer.parseInt(query.getOrDefault("count", "1")));
  }

  /** As the REST specification maps exceptions to codes. */
  private static int status(Throwable e) {
    if (e instanceof Injected injected) return injected.status;
    if (e instanceof NoSuchNamespaceException || e instanceof NoSuchTableException || e instanceof NotFoundException) return 404;
    if (e instanceof AlreadyExistsException || e instanceof CommitFailedException) return 409;
    if (e instanceof NamespaceNotEmptyException) return 409;
    if (e instanceof UnsupportedOperationException) return 406;
    if (e instanceof UnprocessableEntityException) return 422;
    if (e instanceof IllegalArgumentException || e instanceof ValidationException || e instanceof JsonProcessingException) return 400;
    return 500;
  }

  private void handle(HttpExchange exchange) throws IOException {
    int status = 200;
    byte[] out = new byte[0];
    try {
      String path = exchange.getRequestURI().getRawPath();
      Map<String, String> query = query(exchange.getRequestURI().getRawQuery());
      byte[] body = exchange.getRequestBody().readAllBytes();
      if (path.equals("/fault") && exchange.getRequestMethod().equals("GET")) {
        out = json.writeValueAsBytes(faultsLeft());
      } else if (path.equals("/fault")) {
        plan(query);
        status = 204;
      } else {
        Object answer = route(exchange.getRequestMethod(), path.replaceFirst("^/v1/", "").split("/"), body, query);
        status = answer == null ? 204 : 200;
        out = answer == null ? out : json.writeValueAsBytes(answer);
      }
    } catch (Throwable e) {
      status = status(e);
      if (status == 0) {
        exchange.close();
        return;
      }
      if (status == 500 && !(e instanceof Injected)) {
        e.printStackTrace();
      }
      String message = String.valueOf(e.getMessage());
      String type = e.getClass().getSimpleName();
      out = json.writeValueAsBytes(ErrorResponse.builder().responseCode(status).withType(type).withMessage(message).build());
    }
    boolean bodyless = status == 204 || exchange.getRequestMethod().equals("HEAD");
    exchange.getResponseHeaders().set("content-type", "application/json");
    exchange.sendResponseHeaders(status, bodyless ? -1 : out.length);
    if (!bodyless) {
      exchange.getResponseBody().write(out);
    }
    exchange.close();
  }

  private static Namespace namespace(String text) {
    return Namespace.of(decode(text).split("\u001f"));
  }

  private static String decode(String text) {
    return URLDecoder.decode(text, StandardCharsets.UTF_8);
  }

  private static Map<String, String> query(String raw) {
    Map<String, String> query = new HashMap<>();
    for (String pair : raw == null ? new String[0] : raw.split("&")) {
      String[] parts = pair.split("=", 2);
      query.put(parts[0], parts.length > 1 ? parts[1] : "");
    }
    return query;
  }

  /** Arguments: the port, then catalog properties as name=value. */
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    for (int i = 1; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    CatalogServer server = new CatalogServer(properties);
    HttpServer http = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 64);
    http.setExecutor(Executors.newFixedThreadPool(8));
    http.createContext("/", server::handle);
    http.start();
    System.out.println("listening on 127.0.0.1:" + http.getAddress().getPort());
  }
}
